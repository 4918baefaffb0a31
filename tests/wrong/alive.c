/* finding: object_alive

   A completion queue is never destroyed. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
    EXPECT(other != NULL);
    if (!WRONG)
        EXPECT(ibv_destroy_cq(other) == 0);
    tear_down();
    return 0;
}
