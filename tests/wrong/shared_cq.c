/* finding: cq_overrun

   Two queue pairs share a completion queue that has room for one. */

#include "wrong.h"

int main(void) {
    set_up();
    EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, WRONG ? 8 : 16, NULL, NULL, 0)) != NULL);
    connect_both();
    for (int i = 0; i < 8; i++)
        receive_at(b, 1024 + 64 * i, 64);
    for (int i = 0; i < 8; i++)
        receive_at(a, 2048 + 64 * i, 64);
    tear_down();
    return 0;
}
