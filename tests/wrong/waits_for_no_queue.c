/* finding: endless_wait

   The completion queue was made without the channel that the program waits on in poll. */

#include <poll.h>

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(4);
    set_up();
    with_channel();
    if (WRONG)
        EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(WRONG || ibv_req_notify_cq(cq, 0) == 0);
    send_one();
    struct pollfd wanted = {.fd = channel->fd, .events = POLLIN};
    EXPECT(poll(&wanted, 1, -1) == (WRONG ? -1 : 1));
    EXPECT(WRONG || event_comes());
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
