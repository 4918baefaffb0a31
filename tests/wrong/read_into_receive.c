/* finding: receive_overlap

   A READ fetches into the buffer of a posted receive. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(a, 1024, 512);
    struct ibv_sge sge = {.addr = (uintptr_t)memory + (WRONG ? 1535 : 1536), .length = 64, .lkey = mr->lkey};
    EXPECT(send_with(a, sge, IBV_WR_RDMA_READ, mr->rkey, 0) == 0 && errors_among(1) == 0);
    tear_down();
    return 0;
}
