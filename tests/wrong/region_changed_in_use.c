/* finding: region_in_use

   A region is registered again while a receive needs it. */

#include "wrong.h"

static char other[4096];

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    if (!WRONG) {
        send_one();
        poll_both();
    }
    EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, sizeof other, 0) == 0);
    tear_down();
    return 0;
}
