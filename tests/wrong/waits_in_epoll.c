/* finding: endless_wait

   The completion queue is armed for the first event, and not again for the second, which is waited
   for in epoll_wait. */

#include <sys/epoll.h>

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(4);
    set_up();
    with_channel();
    connect_both();
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    EXPECT(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &event) == 0);
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    for (int i = 0; i < 2; i++) {
        receive_at(b, 1024, 512);
        send_one();
        int is_lost = WRONG && i == 1;
        EXPECT(epoll_wait(epoll, &event, 1, -1) == (is_lost ? -1 : 1));
        EXPECT(is_lost || event_comes());
        EXPECT(WRONG || ibv_req_notify_cq(cq, 0) == 0);
        poll_both();
    }
    EXPECT(close(epoll) == 0);
    without_channel();
    tear_down();
    return 0;
}
