/* explained: inline_too_long
   says: ibv_wr_complete 8, request 2 of its batch

   One request of a batch has more inline data than the queue pair takes. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    EXPECT((a = ibv_create_qp_ex(context, &attr)) != NULL);
    b = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    struct ibv_qp_ex *batch = ibv_qp_to_qp_ex(a);
    ibv_wr_start(batch);
    for (int i = 7; i < 10; i++) {
        receive(b, 64);
        batch->wr_id = i;
        ibv_wr_send(batch);
        ibv_wr_set_inline_data(batch, memory, WRONG && i == 8 ? sizeof memory : 8);
    }
    EXPECT(ibv_wr_complete(batch) == (WRONG ? EINVAL : 0));
    EXPECT(errors_among(WRONG ? 0 : 6) == 0);
    tear_down();
    return 0;
}
