/* finding: used_after_destroy

   A region in a domain that has gone with its last queue pair. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mr *region = WRONG ? NULL : ibv_reg_mr(other, memory, 64, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(WRONG || ibv_dereg_mr(region) == 0);
    EXPECT(ibv_dealloc_pd(other) == 0);
    if (WRONG)
        EXPECT(ibv_reg_mr(other, memory, 64, IBV_ACCESS_LOCAL_WRITE) == NULL);
    tear_down();
    return 0;
}
