/* explained: receiver_not_ready
   says: RNR NAKs sent: 2

   A message before a receive is posted. */

#include "wrong.h"

int main(void) {
    set_up();
    rnr_retry = 1;
    connect_both();
    if (!WRONG)
        receive(b, 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - WRONG) > 0) == WRONG);
    tear_down();
    return 0;
}
