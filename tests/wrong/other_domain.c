/* explained: foreign_pd

   A region of one domain, a queue pair of another. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mr *region = ibv_reg_mr(WRONG ? other : pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
    connect_both();
    receive_at(b, 1024, 64);
    EXPECT(region && send_with(a, (struct ibv_sge){(uintptr_t)memory, 64, region->lkey}, IBV_WR_SEND, 0, 0) == 0);
    EXPECT((errors_among(2 - WRONG) > 0) == WRONG && ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(other) == 0);
    tear_down();
    return 0;
}
