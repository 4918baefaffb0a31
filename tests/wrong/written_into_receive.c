/* finding: receive_overwritten

   The peer's WRITE lands in the buffer of a posted receive, whose message comes later. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 4; i++) {
        receive_at(b, WRONG ? 2048 : 1024, 512);
        receive_at(b, 3072, 0);
        EXPECT(send_with(a, part(100), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0 && errors_among(1) == 0);
        send_one();
        poll_both();
        /* the receive behind has no message: the WRITE is all there is */
        EXPECT(send_with(a, part(100), IBV_WR_RDMA_WRITE_WITH_IMM, mr->rkey, 0) == 0);
        poll_both();
    }
    tear_down();
    return 0;
}
