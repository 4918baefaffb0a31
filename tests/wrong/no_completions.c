/* explained: object_size

   A completion queue of no entries. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq *other = ibv_create_cq(context, !WRONG, NULL, NULL, 0);
    EXPECT((other == NULL) == WRONG && (WRONG || ibv_destroy_cq(other) == 0));
    tear_down();
    return 0;
}
