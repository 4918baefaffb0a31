/* finding: lost_wake_up

   Polled, armed, and waited, as in lost_before_poll.c, but the descriptor does not block. */

#include <fcntl.h>
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
    EXPECT(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
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
    struct ibv_cq *of;
    void *data;
    do
        EXPECT(poll(&wanted, 1, -1) == 1);
    while (ibv_get_cq_event(channel, &of, &data) != 0 && errno == EAGAIN);
    EXPECT(of == cq);
    ibv_ack_cq_events(cq, 1);
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
