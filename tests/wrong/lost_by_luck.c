/* finding: lost_wake_up

   Polled, armed, and waited: what comes between the first two is not seen. */

#include <pthread.h>

#include "wrong.h"

static void *send_late(void *unused) {
    usleep(400000);
    send_one();
    return unused;
}

/* The right order: armed, polled, waited. The WRONG one: polled, armed, waited. */
static void wait_for_one(int arm_first) {
    struct ibv_cq *of;
    struct ibv_wc wc;
    void *data;
    int count = 0;
    if (arm_first)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    count += ibv_poll_cq(cq, 1, &wc);
    EXPECT(count == 0);
    if (!arm_first)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    ibv_ack_cq_events(cq, 1);
}

int main(void) {
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, send_late, NULL) == 0);
    wait_for_one(!WRONG);
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
