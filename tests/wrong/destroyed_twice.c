/* finding: used_after_destroy

   Two parts of a program clean up. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
    EXPECT(ibv_destroy_cq(other) == 0 && (!WRONG || ibv_destroy_cq(other) == ENOENT));
    tear_down();
    return 0;
}
