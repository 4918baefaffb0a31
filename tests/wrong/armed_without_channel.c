/* finding: armed_without_channel

   The queue is armed, and was made without a channel: the program would wait for an event that never comes. */

#include "wrong.h"

int main(void) {
    set_up();
    if (!WRONG)
        with_channel();
    connect_both();
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    receive_at(b, 1024, 512);
    send_one();
    poll_both();
    if (!WRONG)
        without_channel();
    tear_down();
    return 0;
}
