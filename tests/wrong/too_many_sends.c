/* finding: send_queue_full

   ENOMEM is answered by trying again, and completions are polled at the end. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    int polled = 0;
    for (int i = 0; i < 20; i++) { /* of 8 */
        while (send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == ENOMEM) {
            usleep(1000); /* no room comes back */
            if (!WRONG) {
                EXPECT(errors_among(1) == 0);
                polled++;
            }
        }
        usleep(10000);
    }
    EXPECT(errors_among(20 - polled) == 0);
    tear_down();
    return 0;
}
