/* explained: unknown_qp, no_response
   says: no such queue pair

   Another queue pair than the peer has. */

#include "wrong.h"

int main(void) {
    set_up();
    extra_number = WRONG;
    connect_both();
    receive(b, 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - WRONG) > 0) == WRONG);
    tear_down();
    return 0;
}
