/* fails with: delay

   The answer has come, so the request is complete, and its completion there: nothing says so. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq *received = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = received, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT(received && (a = ibv_create_qp(pd, &attr)) != NULL && (b = ibv_create_qp(pd, &attr)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0 && to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_wc wc;
        receive_at(a, 1024, 64);
        receive_at(b, 2048, 64);
        EXPECT(send_with(a, part(64), IBV_WR_SEND, 0, 0) == 0);
        while (ibv_poll_cq(received, 1, &wc) == 0)
            ;
        EXPECT(send_with(b, part(64), IBV_WR_SEND, 0, 0) == 0);
        while (ibv_poll_cq(received, 1, &wc) == 0)
            ;
        EXPECT(WRONG ? ibv_poll_cq(cq, 1, &wc) == 1 && errors_among(1) == 0 : errors_among(2) == 0);
    }
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(received) == 0);
    a = b = NULL;
    tear_down();
    return 0;
}
