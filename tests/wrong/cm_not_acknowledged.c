/* finding: cm_events_unacknowledged

   An event of the id is not acknowledged; destroying the id hangs. */

#include <pthread.h>

#include "cm.h"

static void *acknowledge_late(void *event) {
    sleep(4);
    rdma_ack_cm_event(event);
    return NULL;
}

int main(void) {
    begin();
    struct rdma_cm_event *event = next(client, ADDR_RESOLVED);
    pthread_t thread;
    if (WRONG) /* or it would wait for ever */
        EXPECT(pthread_create(&thread, NULL, acknowledge_late, event) == 0);
    else
        EXPECT(rdma_ack_cm_event(event) == 0);
    end();
    EXPECT(!WRONG || pthread_join(thread, NULL) == 0);
    return 0;
}
