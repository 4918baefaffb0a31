/* finding: send_queue_full

   The send queue has room for the WRITEs; the messages that announce them were forgotten. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 8; i++)
        receive_at(b, 1024 + 64 * i, 64);
    for (int writes = 0; writes < 8; writes++) { /* max_send_wr is 8 */
        if (!WRONG && writes % 4 == 0 && writes > 0)
            EXPECT(errors_among(12) == 0);
        while (send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == ENOMEM)
            usleep(1000);
        while (send_with(a, part(8), IBV_WR_SEND, 0, 0) == ENOMEM)
            usleep(1000);
        usleep(1000);
    }
    EXPECT(errors_among(WRONG ? 24 : 12) == 0);
    tear_down();
    return 0;
}
