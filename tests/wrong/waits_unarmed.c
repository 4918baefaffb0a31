/* finding: endless_wait

   The completion queue is armed for the first event, and not again for the second. */

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(2);
    set_up();
    with_channel();
    connect_both();
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    for (int i = 0; i < 2; i++) {
        receive_at(b, 1024, 512);
        send_one();
        EXPECT(event_comes() == !(WRONG && i == 1));
        EXPECT(WRONG || ibv_req_notify_cq(cq, 0) == 0);
        poll_both();
    }
    without_channel();
    tear_down();
    return 0;
}
