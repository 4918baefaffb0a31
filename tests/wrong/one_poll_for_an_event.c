/* finding: lost_wake_up

   One event is taken for one completion: the second one lies there when the program waits again. */

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
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    memory[0] = 1;
    send_one();
    wait_for_data();
    struct ibv_cq *of;
    void *data;
    pthread_t thread;
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    EXPECT(errors_among(WRONG ? 1 : 2) == 0 && ibv_req_notify_cq(cq, 0) == 0);
    if (!WRONG)
        EXPECT(ibv_poll_cq(cq, 1, &(struct ibv_wc){0}) == 0);
    EXPECT(pthread_create(&thread, NULL, send_late, NULL) == 0);
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    ibv_ack_cq_events(cq, 2);
    EXPECT(pthread_join(thread, NULL) == 0 && errors_among(WRONG ? 3 : 2) == 0);
    without_channel();
    tear_down();
    return 0;
}
