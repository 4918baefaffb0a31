/* explained: inline_too_long
   says: cap.max_inline_data

   Inline without a look at max_inline_data. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive(b, 128);
    EXPECT(send_with(a, part(WRONG ? 65 : 64), IBV_WR_SEND, 0, IBV_SEND_INLINE) == (WRONG ? EINVAL : 0));
    tear_down();
    return 0;
}
