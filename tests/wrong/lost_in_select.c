/* finding: lost_wake_up

   The queue is armed when the completion is there already, and the wait is in select. */

#include <pthread.h>
#include <sys/select.h>

#include "wrong.h"

static void *send_late(void *unused) {
    sleep(4);
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
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(channel->fd, &wanted);
    EXPECT(select(channel->fd + 1, &wanted, NULL, NULL, NULL) == 1);
    EXPECT(event_comes());
    EXPECT(!WRONG || pthread_join(thread, NULL) == 0);
    EXPECT(errors_among(WRONG ? 4 : 2) == 0);
    without_channel();
    tear_down();
    return 0;
}
