/* finding: send_buffer_changed

   A request without a completion of its own is taken for complete when it is posted. */

#include "wrong.h"

int main(void) {
    set_up();

    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1}};
    connect_both();
    struct ibv_qp *made = a;
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL && ibv_destroy_qp(made) == 0);
    EXPECT(ibv_destroy_qp(b) == 0 && (b = make(IBV_QPT_RC)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0 && to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
    if (WRONG) /* its completion is that of the next one */
        memory[1]++;
    struct ibv_sge sge = {.addr = (uintptr_t)memory + 512, .length = 64, .lkey = mr->lkey};
    EXPECT(send_with(a, sge, IBV_WR_RDMA_WRITE, mr->rkey, IBV_SEND_SIGNALED) == 0 && errors_among(1) == 0);
    memory[1]++;
    tear_down();
    return 0;
}
