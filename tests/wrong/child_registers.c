/* finding: used_in_child

   A forked child registers memory with the protection domain of its parent. */

#include "child.h"

static char bytes[64];

static void prepare(void) {
}

static void use(void) {
    struct ibv_mr *region = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(region != NULL || WRONG);
    EXPECT(region == NULL || ibv_dereg_mr(region) == 0);
}

int main(void) {
    in_child(prepare, use);
}
