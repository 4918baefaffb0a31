/* finding: used_after_destroy

   One more message after the connection has been closed. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_qp *gone = a;
    a = NULL;
    EXPECT(ibv_destroy_qp(gone) == 0 && (!WRONG || send_with(gone, part(8), IBV_WR_SEND, 0, 0) == EINVAL));
    tear_down();
    return 0;
}
