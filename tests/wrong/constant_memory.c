/* explained: memory_unreachable

   Memory that the program itself may not write, such as a literal. */

#include "wrong.h"

static const char text[4096] = "a constant";

int main(void) {
    set_up();
    struct ibv_mr *region = ibv_reg_mr(pd, (void *)text, sizeof text, WRONG ? IBV_ACCESS_LOCAL_WRITE : 0);
    EXPECT((region == NULL) == WRONG && (WRONG || ibv_dereg_mr(region) == 0));
    tear_down();
    return 0;
}
