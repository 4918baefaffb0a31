/* finding: used_after_destroy

   A cache of regions gives one back to two owners. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_mr *other = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(other && ibv_dereg_mr(other) == 0 && (!WRONG || ibv_dereg_mr(other) != 0));
    tear_down();
    return 0;
}
