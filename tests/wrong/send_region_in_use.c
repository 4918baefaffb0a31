/* finding: region_in_use

   The region goes when the message is posted: it waits for a receive. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    static char bytes[64];
    struct ibv_mr *other = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!WRONG)
        receive_at(b, 1024, 64);
    EXPECT(send_with(a, (struct ibv_sge){(uintptr_t)bytes, 64, other->lkey}, IBV_WR_SEND, 0, 0) == 0);
    if (!WRONG)
        poll_both();
    EXPECT(ibv_dereg_mr(other) == 0);
    tear_down();
    return 0;
}
