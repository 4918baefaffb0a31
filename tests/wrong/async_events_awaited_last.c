/* finding: endless_wait

   A thread waits for asynchronous events, and its end is waited for when no object is left to cause one. */

#include <pthread.h>

#include "wrong.h"

static volatile int is_done;

static void *take_events(void *unused) {
    struct ibv_async_event event;
    do {
        if (ibv_get_async_event(context, &event) != 0) {
            EXPECT(WRONG && errno == EINTR);
            return unused;
        }
        ibv_ack_async_event(&event);
    } while (!is_done);
    return unused;
}

int main(void) {
    if (WRONG)
        interrupt_later(4);
    set_up();
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, take_events, NULL) == 0);
    sigset_t signals; /* the other thread takes it */
    EXPECT(sigemptyset(&signals) == 0 && sigaddset(&signals, SIGUSR1) == 0);
    EXPECT(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    connect_both();
    receive_at(b, 1024, 512);
    send_one();
    poll_both();
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
    is_done = 1;
    EXPECT(WRONG || pthread_cancel(thread) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    return 0;
}
