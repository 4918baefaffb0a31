/* finding: lost_wake_up

   Polled, armed, and waited, as in lost_by_luck.c, but the wait is in poll. */

#include <poll.h>
#include <pthread.h>

#include "wrong.h"

static void *send_late(void *unused) {
    usleep(400000);
    send_one();
    return unused;
}

static void poll_once(void) {
    struct ibv_wc wc;
    EXPECT(ibv_poll_cq(cq, 1, &wc) == 0);
}

int main(void) {
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, send_late, NULL) == 0);
    if (WRONG)
        poll_once();
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    if (!WRONG)
        poll_once();
    struct pollfd wanted = {.fd = channel->fd, .events = POLLIN};
    EXPECT(poll(&wanted, 1, -1) == 1);
    EXPECT(event_comes());
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
