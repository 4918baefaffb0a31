/* finding: object_alive

   An address handle for each datagram, and none is destroyed. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_ah_attr way = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    for (int i = 0; i < 10; i++) {
        struct ibv_ah *ah = ibv_create_ah(pd, &way);
        EXPECT(ah != NULL && (WRONG || ibv_destroy_ah(ah) == 0));
    }
    if (WRONG)
        exit(0);
    tear_down();
    return 0;
}
