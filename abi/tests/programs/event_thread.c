/* A thread takes events, and another one polls, arms and polls again, which is no mistake. */

#include <pthread.h>

#include "wrong.h"

static void *take_event(void *none) {
    EXPECT(event_comes());
    return none;
}

int main(void) {
    pthread_t thread;
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    struct ibv_wc wc;
    EXPECT(ibv_poll_cq(cq, 1, &wc) == 0 && ibv_req_notify_cq(cq, 0) == 0);
    EXPECT(pthread_create(&thread, NULL, take_event, NULL) == 0);
    wait_a_while(); /* it waits for an event */
    EXPECT(ibv_poll_cq(cq, 1, &wc) == 0);
    send_one();
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
