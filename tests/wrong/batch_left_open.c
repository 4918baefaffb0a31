/* finding: batch_not_ended

   A batch of requests is left early, and neither completed nor aborted. */

#include "wrong.h"

static struct ibv_qp_ex *batch;

static void end_late(int signal) {
    (void)signal;
    ibv_wr_abort(batch);
}

int main(void) {
    set_up();
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    EXPECT((a = ibv_create_qp_ex(context, &attr)) != NULL);
    batch = ibv_qp_to_qp_ex(a);
    ibv_wr_start(batch);
    if (WRONG) { /* or it would wait for ever */
        EXPECT(signal(SIGALRM, end_late) != SIG_ERR);
        alarm(1);
    } else
        ibv_wr_abort(batch);
    ibv_wr_start(batch);
    ibv_wr_abort(batch);
    tear_down();
    return 0;
}
