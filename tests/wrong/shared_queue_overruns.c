/* advice: shared_queue_overrun

   A shared receive queue holds more than the completion queue of who takes from it. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_srq_init_attr all = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &all);
    EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, WRONG ? 8 : 16, NULL, NULL, 0)) != NULL && srq != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL);
    for (int i = 0; i < 16; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)memory + 1024 + 64 * i, .length = 64, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
        EXPECT(context->ops.post_srq_recv(srq, &wr, &bad) == 0);
    }
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_srq(srq) == 0);
    a = NULL;
    tear_down();
    return 0;
}
