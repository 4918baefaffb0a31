/* finding: endless_wait

   The completion of a send is looked for in the queue of the receives. */

#include <time.h>

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq *received = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = received, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT(received != NULL && (a = ibv_create_qp(pd, &attr)) != NULL && (b = make(IBV_QPT_RC)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0 && to_rtr(a, b->qp_num, 0, 1) == 0 && to_rtr(b, a->qp_num, 0, 1) == 0);
    EXPECT(to_rts(a, 0) == 0 && to_rts(b, 0) == 0);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
    struct ibv_wc wc;
    time_t end = time(NULL) + 3; /* or it would last for ever */
    while (ibv_poll_cq(WRONG ? received : cq, 1, &wc) == 0 && time(NULL) < end)
        continue;
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_cq(received) == 0);
    a = NULL;
    tear_down();
    return 0;
}
