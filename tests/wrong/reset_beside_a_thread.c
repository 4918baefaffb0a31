/* finding: reset_discarded

   A queue pair is reset to have its receives flushed, while another thread waits for this one. */

#include <pthread.h>
#include <time.h>

#include "wrong.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_lock(void *unused) {
    EXPECT(pthread_mutex_lock(&lock) == 0 && pthread_mutex_unlock(&lock) == 0);
    return unused;
}

/* A completion that comes within two seconds. */
static int completes(void) {
    struct ibv_wc wc;
    for (time_t begin = time(NULL); time(NULL) <= begin + 2;)
        if (ibv_poll_cq(cq, 1, &wc) == 1)
            return 1;
    return 0;
}

int main(void) {
    set_up();
    connect_both();
    EXPECT(pthread_mutex_lock(&lock) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, wait_for_lock, NULL) == 0);
    receive_at(b, 0, 64);
    struct ibv_qp_attr attr = {.qp_state = WRONG ? IBV_QPS_RESET : IBV_QPS_ERR};
    EXPECT(ibv_modify_qp(b, &attr, IBV_QP_STATE) == 0);
    EXPECT(completes() == !WRONG);
    EXPECT(pthread_mutex_unlock(&lock) == 0 && pthread_join(thread, NULL) == 0);
    tear_down();
    return 0;
}
