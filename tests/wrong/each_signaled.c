/* advice: each_request_signaled

   Every WRITE of a deep queue brings a completion. */

#include "wrong.h"

enum { DEPTH = 64, WRITES = 4096 };

int main(void) {
    set_up();
    EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0)) != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = WRONG,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL && (b = ibv_create_qp(pd, &attr)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    int each = WRONG ? 1 : 16;
    for (int posted = 0, done = 0; done < WRITES;) {
        struct ibv_wc wc;
        int count = ibv_poll_cq(cq, 1, &wc);
        EXPECT(count == 0 || (count == 1 && wc.status == IBV_WC_SUCCESS));
        done += count * each;
        for (; posted < WRITES && posted - done < DEPTH; posted++)
            EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, (posted + 1) % each ? 0 : IBV_SEND_SIGNALED) == 0);
    }
    tear_down();
    return 0;
}
