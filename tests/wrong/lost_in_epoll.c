/* finding: lost_wake_up

   The queue is armed when the completion is there already, and the wait is in epoll_wait. */

#include <pthread.h>
#include <sys/epoll.h>

#include "wrong.h"

static void *send_late(void *unused) {
    sleep(4);
    send_one();
    return unused;
}

int main(void) {
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    receive_at(b, 1536, 512);
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    EXPECT(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &event) == 0);
    if (!WRONG)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    memory[0] = 1;
    send_one();
    wait_for_data();
    if (WRONG)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    pthread_t thread;
    EXPECT(!WRONG || pthread_create(&thread, NULL, send_late, NULL) == 0);
    EXPECT(epoll_wait(epoll, &event, 1, -1) == 1 && close(epoll) == 0);
    EXPECT(event_comes());
    EXPECT(!WRONG || pthread_join(thread, NULL) == 0);
    EXPECT(errors_among(WRONG ? 4 : 2) == 0);
    without_channel();
    tear_down();
    return 0;
}
