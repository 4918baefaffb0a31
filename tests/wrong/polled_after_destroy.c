/* finding: used_after_destroy

   The thread that polls is told too late that its queue is gone. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_wc wc;
    EXPECT(ibv_destroy_cq(other) == 0 && (!WRONG || ibv_poll_cq(other, 1, &wc) == -1));
    tear_down();
    return 0;
}
