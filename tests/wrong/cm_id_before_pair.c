/* finding: cm_queue_pair_in_use

   An id is destroyed before its queue pair. */

#include "cm.h"

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *domain, struct ibv_qp_init_attr *attr);
void rdma_destroy_qp(struct rdma_cm_id *id);

int main(void) {
    begin();
    rdma_ack_cm_event(next(client, ADDR_RESOLVED));
    EXPECT((pd = ibv_alloc_pd(caller->verbs)) != NULL && (cq = ibv_create_cq(caller->verbs, 8, NULL, NULL, 0)) != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT(rdma_create_qp(caller, pd, &attr) == 0);
    a = caller->qp;
    if (!WRONG) {
        rdma_destroy_qp(caller);
        a = NULL;
    }
    end();
    EXPECT((a == NULL || ibv_destroy_qp(a) == 0) && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
    return 0;
}
