/* finding: used_in_child

   A forked child destroys the queue pair of its parent before it ends: the kernel has one for both. */

#include "child.h"

static void prepare(void) {
    a = make(IBV_QPT_RC);
}

static void use(void) {
    EXPECT(ibv_destroy_qp(a) == 0);
    a = NULL;
}

int main(void) {
    in_child(prepare, use);
}
