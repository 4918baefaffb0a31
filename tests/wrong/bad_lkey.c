/* explained: unknown_key
   says: lkey of the region

   Not the key of ibv_reg_mr. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive(b, 64);
    struct ibv_sge sge = part(8);
    sge.lkey ^= WRONG;
    EXPECT(send_with(a, sge, IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - WRONG) > 0) == WRONG);
    tear_down();
    return 0;
}
