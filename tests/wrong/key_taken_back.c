/* explained: deregistered_key, remote_access

   A region is deregistered while the peer still has its key. */

#include "wrong.h"

int main(void) {
    set_up();
    static char bytes[64];
    struct ibv_mr *region = ibv_reg_mr(pd, bytes, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(region != NULL);
    uint32_t rkey = region->rkey;
    connect_both();
    if (WRONG)
        EXPECT(ibv_dereg_mr(region) == 0);
    struct ibv_sge sge = part(64);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)bytes;
    wr.wr.rdma.rkey = rkey;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG && (WRONG || ibv_dereg_mr(region) == 0));
    tear_down();
    return 0;
}
