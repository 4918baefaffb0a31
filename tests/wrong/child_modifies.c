/* finding: used_in_child

   A forked child moves the queue pair of its parent to INIT. */

#include "child.h"

static void prepare(void) {
    a = make(IBV_QPT_RC);
}

static void use(void) {
    EXPECT(to_init(a, 0) == 0 || WRONG);
}

int main(void) {
    in_child(prepare, use);
}
