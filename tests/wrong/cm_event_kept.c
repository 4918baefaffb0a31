/* fails with: json

   The private data of a request is read after its event is acknowledged, which frees both. */

#include "cm.h"

int main(void) {
    begin();
    struct rdma_cm_event *event = request("hello");
    const char *data = event->conn.private_data;
    struct rdma_cm_id *id = event->id;
    if (WRONG)
        EXPECT(rdma_ack_cm_event(event) == 0);
    EXPECT(strcmp(data, "hello") == 0);
    if (!WRONG)
        EXPECT(rdma_ack_cm_event(event) == 0);
    EXPECT(rdma_reject(id, NULL, 0) == 0 && rdma_destroy_id(id) == 0);
    rdma_ack_cm_event(next(client, REJECTED));
    end();
    return 0;
}
