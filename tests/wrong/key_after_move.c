/* finding: deregistered_key
   stacks: reregistered

   A region moves to other memory, and the peer keeps to the address that it had. */

#include "wrong.h"

int main(void) {
    set_up();
    static char old[64], new[64];
    struct ibv_mr *region = ibv_reg_mr(pd, old, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(region != NULL);
    connect_both();
    EXPECT(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, new, 64, 0) == 0);
    struct ibv_sge sge = part(64);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)(WRONG ? old : new);
    wr.wr.rdma.rkey = region->rkey;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
