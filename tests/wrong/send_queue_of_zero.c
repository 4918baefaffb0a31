/* explained: queue_of_zero
   says: cap.max_send_wr

   The attributes have no number of sends. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = WRONG ? 0 : 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL);
    b = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == (WRONG ? ENOMEM : 0));
    EXPECT(errors_among(WRONG ? 0 : 1) == 0);
    tear_down();
    return 0;
}
