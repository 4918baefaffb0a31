/* fails with: delay

   One look at the completion queue, a while after the request. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_wc wc;
        EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
        if (WRONG) {
            usleep(500);
            EXPECT(ibv_poll_cq(cq, 1, &wc) == 1);
        } else {
            EXPECT(errors_among(1) == 0);
        }
    }
    tear_down();
    return 0;
}
