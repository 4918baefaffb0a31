/* explained: buffer_too_small, remote_invalid_request
   says: longer than its receive buffer

   A receive that is shorter than the message. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive(b, WRONG ? 4 : 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2) > 0) == WRONG);
    tear_down();
    return 0;
}
