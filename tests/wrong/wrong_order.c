/* explained: illegal_transition
   says: move it to INIT, RTR, RTS

   From INIT to RTS, without RTR. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0);
    if (!WRONG)
        EXPECT(to_rtr(a, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == (WRONG ? EINVAL : 0));
    tear_down();
    return 0;
}
