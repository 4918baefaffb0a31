/* finding: cq_events_unacknowledged

   One thread takes an event and does not acknowledge it, another one destroys the queue, and hangs. */

#include <pthread.h>

#include "wrong.h"

static void *take_event(void *unused) {
    struct ibv_cq *of;
    void *data;
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    if (!WRONG)
        ibv_ack_cq_events(of, 1);
    return unused;
}

static void *acknowledge_late(void *of) {
    sleep(4);
    ibv_ack_cq_events(of, 1);
    return NULL;
}

int main(void) {
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, take_event, NULL) == 0);
    send_one();
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
    if (WRONG) /* or it would wait for ever */
        EXPECT(pthread_create(&thread, NULL, acknowledge_late, cq) == 0);
    without_channel();
    EXPECT(!WRONG || pthread_join(thread, NULL) == 0);
    tear_down();
    return 0;
}
