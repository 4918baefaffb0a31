/* finding: deregistered_key
   stacks: rebound

   The peer has the key that a memory window had before it was bound. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    static char bytes[64];
    struct ibv_mr *region = ibv_reg_mr(pd, bytes, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    EXPECT(region != NULL && window != NULL);
    uint32_t before = window->rkey;
    struct ibv_mw_bind bind = {.wr_id = 1, .bind_info = {.mr = region, .addr = (uintptr_t)bytes, .length = 64,
        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
    EXPECT(ibv_bind_mw(b, window, &bind) == 0 && errors_among(1) == 0);
    struct ibv_sge sge = part(64);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)bytes;
    wr.wr.rdma.rkey = WRONG ? before : window->rkey;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG);
    EXPECT(ibv_dealloc_mw(window) == 0 && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
