/* explained: object_in_use

   The domain goes before its regions. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mr *region = ibv_reg_mr(other, memory, 64, IBV_ACCESS_LOCAL_WRITE);
    if (WRONG)
        EXPECT(region && ibv_dealloc_pd(other) != 0);
    EXPECT(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(other) == 0);
    tear_down();
    return 0;
}
