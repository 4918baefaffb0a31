/* explained: missing_right, remote_operation

   A receive in a region without IBV_ACCESS_LOCAL_WRITE. */

#include "wrong.h"

int main(void) {
    set_up();
    static char bytes[64];
    struct ibv_mr *region = ibv_reg_mr(pd, bytes, 64, WRONG ? 0 : IBV_ACCESS_LOCAL_WRITE);
    EXPECT(region != NULL);
    connect_both();
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = 64, .lkey = region->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(b, &wr, &bad) == 0 && send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0);
    EXPECT((errors_among(2) > 0) == WRONG && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
