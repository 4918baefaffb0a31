/* finding: read_target_written

   The place for the old value of an atomic is set to 0 after it is posted. */

#include "wrong.h"

int main(void) {
    set_up();
    rights |= IBV_ACCESS_REMOTE_ATOMIC;
    EXPECT(ibv_dereg_mr(mr) == 0);
    EXPECT((mr = ibv_reg_mr(pd, memory, sizeof memory, rights | IBV_ACCESS_LOCAL_WRITE)) != NULL);
    connect_both();
    struct ibv_sge sge = part(8);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD}, *bad;
    wr.wr.atomic.remote_addr = (uintptr_t)memory + 2048;
    wr.wr.atomic.rkey = mr->rkey;
    wr.wr.atomic.compare_add = 5;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0);
    wait_a_while();
    if (WRONG)
        memory[0] = 3;
    EXPECT(errors_among(1) == 0);
    tear_down();
    return 0;
}
