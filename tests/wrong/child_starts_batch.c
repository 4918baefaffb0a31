/* finding: used_in_child

   A forked child begins a batch of requests with the queue pair of its parent. */

#include "child.h"

static void prepare(void) {
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    EXPECT((a = ibv_create_qp_ex(context, &attr)) != NULL);
}

static void use(void) {
    struct ibv_qp_ex *batch = ibv_qp_to_qp_ex(a);
    ibv_wr_start(batch);
    ibv_wr_abort(batch);
}

int main(void) {
    in_child(prepare, use);
}
