/* finding: deregistered_key

   Memory is registered anew, and the peer keeps to the key that it had. */

#include "wrong.h"

int main(void) {
    set_up();
    static char bytes[64];
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *region = ibv_reg_mr(pd, bytes, 64, access);
    EXPECT(region != NULL);
    uint32_t rkey = region->rkey;
    connect_both();
    EXPECT(ibv_dereg_mr(region) == 0 && (region = ibv_reg_mr(pd, bytes, 64, access)) != NULL);
    if (!WRONG)
        rkey = region->rkey;
    struct ibv_sge sge = part(64);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)bytes;
    wr.wr.rdma.rkey = rkey;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
