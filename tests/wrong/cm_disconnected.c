/* finding: object_alive

   The server takes the client's disconnect as the end, and answers it by neither rdma_disconnect nor
   rdma_destroy_id. */

#include "cm.h"

int main(void) {
    begin();
    struct rdma_cm_event *event = request("");
    struct rdma_cm_id *id = event->id;
    struct rdma_conn_param param = {.qp_num = 6};
    EXPECT(rdma_ack_cm_event(event) == 0 && rdma_accept(id, &param) == 0);
    rdma_ack_cm_event(next(client, CONNECT_RESPONSE));
    EXPECT(rdma_establish(caller) == 0);
    rdma_ack_cm_event(next(server, ESTABLISHED));
    EXPECT(rdma_disconnect(caller) == 0);
    rdma_ack_cm_event(next(server, DISCONNECTED));
    if (!WRONG) {
        EXPECT(rdma_disconnect(id) == 0);
        rdma_ack_cm_event(next(client, DISCONNECTED));
        EXPECT(rdma_destroy_id(id) == 0);
        end();
    }
    return 0;
}
