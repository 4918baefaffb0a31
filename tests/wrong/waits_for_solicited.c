/* finding: endless_wait

   The receiver waits for a solicited event, and the sender does not say that it is one. */

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(2);
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(ibv_req_notify_cq(cq, 1) == 0);
    EXPECT(send_with(a, part(512), IBV_WR_SEND, 0, WRONG ? 0 : IBV_SEND_SOLICITED) == 0);
    EXPECT(event_comes() == !WRONG);
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
