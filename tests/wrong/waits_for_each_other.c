/* finding: endless_wait

   One thread waits for an event of a queue that is not armed again, another one for its end. */

#include <pthread.h>

#include "wrong.h"

static void *take_two(void *unused) {
    for (int i = 0; i < 2; i++) {
        receive_at(b, 1024, 512);
        send_one();
        EXPECT(event_comes() == !(WRONG && i == 1));
        EXPECT(WRONG || ibv_req_notify_cq(cq, 0) == 0);
        poll_both();
    }
    return unused;
}

int main(void) {
    if (WRONG)
        interrupt_later(4);
    set_up();
    with_channel();
    connect_both();
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, take_two, NULL) == 0);
    sigset_t signals; /* the other thread takes it */
    EXPECT(sigemptyset(&signals) == 0 && sigaddset(&signals, SIGUSR1) == 0);
    EXPECT(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    without_channel();
    tear_down();
    return 0;
}
