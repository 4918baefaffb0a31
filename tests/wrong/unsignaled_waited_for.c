/* advice: endless_poll

   The completion of an unsignaled WRITE is waited for. */

#include <time.h>

#include "wrong.h"

static struct ibv_qp *make_quiet(void) {
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    EXPECT(qp != NULL && to_init(qp, 0) == 0);
    return qp;
}

int main(void) {
    set_up();
    a = make_quiet(), b = make_quiet();
    EXPECT(to_rtr(a, b->qp_num, 0, 1) == 0 && to_rtr(b, a->qp_num, 0, 1) == 0 && to_rts(a, 0) == 0 && to_rts(b, 0) == 0);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, WRONG ? 0 : IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc;
    time_t end = time(NULL) + 3; /* or it would last for ever */
    while (ibv_poll_cq(cq, 1, &wc) == 0 && time(NULL) < end)
        continue;
    tear_down();
    return 0;
}
