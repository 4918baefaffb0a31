/* finding: endless_wait

   The event of a completion is waited for at the descriptor of asynchronous events. */

#include <sys/select.h>

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(5);
    set_up();
    with_channel();
    connect_both();
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    receive_at(b, 1024, 512);
    send_one();
    int descriptor = WRONG ? context->async_fd : channel->fd;
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(descriptor, &wanted);
    EXPECT(select(descriptor + 1, &wanted, NULL, NULL, NULL) == (WRONG ? -1 : 1));
    EXPECT(event_comes());
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
