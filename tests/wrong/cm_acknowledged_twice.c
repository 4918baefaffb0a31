/* finding: used_after_destroy

   An event of rdma_cm is acknowledged where it is taken, and once more at the end. */

#include "cm.h"

int main(void) {
    begin();
    struct rdma_cm_event *event = request("hello");
    struct rdma_cm_id *id = event->id;
    EXPECT(rdma_ack_cm_event(event) == 0);
    EXPECT(rdma_reject(id, NULL, 0) == 0 && rdma_destroy_id(id) == 0);
    rdma_ack_cm_event(next(client, REJECTED));
    if (WRONG)
        EXPECT(rdma_ack_cm_event(event) != 0);
    end();
    return 0;
}
