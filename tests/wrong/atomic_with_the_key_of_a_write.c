/* explained: unknown_key, remote_access
   says: an atomic takes wr.atomic.rkey

   The key of an atomic is written where that of a WRITE belongs. */

#include "wrong.h"

int main(void) {
    rights |= IBV_ACCESS_REMOTE_ATOMIC;
    set_up();
    EXPECT(ibv_dereg_mr(mr) == 0);
    EXPECT((mr = ibv_reg_mr(pd, memory, sizeof memory, rights | IBV_ACCESS_LOCAL_WRITE)) != NULL);
    connect_both();
    struct ibv_sge sge = part(8);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD}, *bad;
    wr.wr.atomic.remote_addr = (uintptr_t)memory + 2048;
    wr.wr.atomic.compare_add = 1;
    if (WRONG)
        wr.wr.rdma.rkey = mr->rkey;
    else
        wr.wr.atomic.rkey = mr->rkey;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
