/* finding: endless_wait

   A thread takes asynchronous events, of which none comes. The other waits for a queue that is not armed. */

#include <pthread.h>

#include "wrong.h"

static void *take_events(void *unused) {
    struct ibv_async_event event;
    while (ibv_get_async_event(context, &event) == 0)
        ibv_ack_async_event(&event);
    return unused;
}

int main(void) {
    if (WRONG)
        interrupt_later(4);
    set_up();
    with_channel();
    connect_both();
    sigset_t signals; /* main takes it */
    EXPECT(sigemptyset(&signals) == 0 && sigaddset(&signals, SIGUSR1) == 0);
    EXPECT(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, take_events, NULL) == 0);
    EXPECT(pthread_sigmask(SIG_UNBLOCK, &signals, NULL) == 0);
    EXPECT(WRONG || ibv_req_notify_cq(cq, 0) == 0);
    receive_at(b, 1024, 512);
    send_one();
    EXPECT(event_comes() == !WRONG);
    poll_both();
    EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    without_channel();
    tear_down();
    return 0;
}
