/* finding: receive_overwritten

   Another queue pair's WRITE lands in a receive of a shared queue. Repaired, it lands in a receive that a WRITE with immediate
   takes, and behind a short message. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    EXPECT(srq != NULL);
    a = make(IBV_QPT_RC);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    EXPECT((b = ibv_create_qp(pd, &attr)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0 && to_rtr(a, b->qp_num, 0, 1) == 0 && to_rtr(b, a->qp_num, 0, 1) == 0);
    EXPECT(to_rts(a, 0) == 0 && to_rts(b, 0) == 0);

    struct ibv_sge sge = {.addr = (uintptr_t)memory + 1536, .length = 1024, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;
    for (int i = 0; i < 2; i++) {
        EXPECT(context->ops.post_srq_recv(srq, &wr, &bad) == 0);
        EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0 && errors_among(1) == 0);
        if (i == 0)
            EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE_WITH_IMM, mr->rkey, 0) == 0);
        else
            EXPECT(send_with(a, part(WRONG ? 513 : 512), IBV_WR_SEND, 0, 0) == 0);
        EXPECT(errors_among(2) == 0);
    }
    EXPECT(ibv_destroy_qp(b) == 0 && ibv_destroy_srq(srq) == 0);
    b = NULL;
    tear_down();
    return 0;
}
