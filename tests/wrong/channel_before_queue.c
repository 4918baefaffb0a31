/* explained: object_in_use

   The channel goes before its completion queue. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_comp_channel *other = ibv_create_comp_channel(context);
    struct ibv_cq *queue = ibv_create_cq(context, 8, NULL, other, 0);
    if (WRONG)
        EXPECT(queue && ibv_destroy_comp_channel(other) != 0);
    EXPECT(ibv_destroy_cq(queue) == 0 && ibv_destroy_comp_channel(other) == 0);
    tear_down();
    return 0;
}
