/* finding: send_buffer_changed

   Only IBV_SEND_INLINE copies; here the flag was lost on the way. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(send_with(a, part(64), IBV_WR_SEND, 0, WRONG ? 0 : IBV_SEND_INLINE) == 0);
    memory[3]++;
    poll_both();
    tear_down();
    return 0;
}
