/* finding: endless_wait

   An event of the client is waited for on the channel of the listener. */

#include "cm.h"

int main(void) {
    if (WRONG)
        interrupt_later(2);
    begin();
    struct rdma_cm_event *event;
    int failed = rdma_get_cm_event(WRONG ? server : client, &event);
    EXPECT(failed ? WRONG && errno == EINTR : event->event == ADDR_RESOLVED);
    if (!failed)
        EXPECT(rdma_ack_cm_event(event) == 0);
    end();
    return 0;
}
