/* explained: post_state
   says: to RTS before sends

   Posted before the queue pair can. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    if (!WRONG) {
        EXPECT(ibv_destroy_qp(a) == 0);
        connect_both();
        receive(b, 64);
    }
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == (WRONG ? EINVAL : 0));
    tear_down();
    return 0;
}
