/* finding: region_in_use

   The region goes before the queue pair whose receives are in it. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    static char bytes[64];
    struct ibv_mr *other = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = sizeof bytes, .lkey = other->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(b, &wr, &bad) == 0);
    if (!WRONG) {
        EXPECT(ibv_destroy_qp(b) == 0);
        b = NULL;
    }
    EXPECT(ibv_dereg_mr(other) == 0);
    tear_down();
    return 0;
}
