/* finding: lost_wake_up

   The queue is armed when the completion is there already. */

#include <pthread.h>

#include "wrong.h"

static void *send_late(void *unused) {
    usleep(400000);
    send_one();
    return unused;
}

int main(void) {
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    receive_at(b, 1536, 512);
    if (!WRONG)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    memory[0] = 1;
    send_one();
    wait_for_data();
    if (WRONG)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    pthread_t thread;
    EXPECT(!WRONG || pthread_create(&thread, NULL, send_late, NULL) == 0);
    struct ibv_cq *of;
    void *data;
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    ibv_ack_cq_events(cq, 1);
    EXPECT(!WRONG || pthread_join(thread, NULL) == 0);
    EXPECT(errors_among(WRONG ? 4 : 2) == 0);
    without_channel();
    tear_down();
    return 0;
}
