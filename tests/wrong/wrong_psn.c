/* explained: wrong_psn
   says: the peer's rq_psn must equal sq_psn here

   Each side has a first PSN of its own, and tells the other another one. */

#include "wrong.h"

int main(void) {
    set_up();
    psn_there += 0x1000 * WRONG;
    connect_both();
    receive(b, 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - WRONG) > 0) == WRONG);
    tear_down();
    return 0;
}
