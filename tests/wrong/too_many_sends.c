/* finding: send_queue_full

   ENOMEM is answered by trying again, and completions are polled at the end. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 20; i++) { /* of 8 */
        while (send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == ENOMEM) /* here room comes back without a look */
            usleep(1000);
        if (!WRONG)
            EXPECT(errors_among(1) == 0);
        usleep(10000);
    }
    EXPECT(errors_among(WRONG ? 20 : 0) == 0);
    tear_down();
    return 0;
}
