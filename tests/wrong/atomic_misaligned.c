/* explained: misaligned_atomic, remote_invalid_request

   A counter in a packed structure: atomics need multiples of 8. */

#include "wrong.h"

int main(void) {
    set_up();
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    EXPECT(ibv_dereg_mr(mr) == 0 && (mr = ibv_reg_mr(pd, memory, sizeof memory, all)) != NULL);
    rights |= IBV_ACCESS_REMOTE_ATOMIC;
    connect_both();
    struct ibv_sge sge = part(8);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD}, *bad;
    wr.wr.atomic.remote_addr = (((uintptr_t)memory + 2048) & ~(uintptr_t)7) + (WRONG ? 4 : 0);
    wr.wr.atomic.rkey = mr->rkey;
    wr.wr.atomic.compare_add = 5;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
