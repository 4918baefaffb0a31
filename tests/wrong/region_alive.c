/* finding: object_alive

   The program ends, so why clean up; its copy in a service runs out of regions. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_mr *other = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(other != NULL);
    if (WRONG)
        exit(0);
    EXPECT(ibv_dereg_mr(other) == 0);
    tear_down();
    return 0;
}
