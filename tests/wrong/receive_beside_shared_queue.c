/* explained: shared_queue

   ibv_post_recv to a queue pair that receives from a shared queue. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_srq_init_attr all = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &all);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    EXPECT(srq != NULL && (a = ibv_create_qp(pd, &attr)) != NULL && to_init(a, 0) == 0);
    struct ibv_sge sge = part(64);
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    if (WRONG)
        EXPECT(ibv_post_recv(a, &wr, &bad) != 0);
    else
        EXPECT(context->ops.post_srq_recv(srq, &wr, &bad) == 0);
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_srq(srq) == 0);
    a = NULL;
    tear_down();
    return 0;
}
