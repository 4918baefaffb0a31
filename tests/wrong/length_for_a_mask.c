/* finding: timeout_zero

   The third argument of ibv_query_qp is a mask, and no length: all attributes are written, whatever it
   says, and what stood there for RTS is gone. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    b = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    struct ibv_qp_attr attr = {.timeout = 14};
    struct ibv_qp_init_attr init;
    if (WRONG)
        EXPECT(ibv_query_qp(a, &attr, sizeof attr, &init) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0x100;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    EXPECT(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    EXPECT(to_rts(b, 0x100) == 0);
    tear_down();
    return 0;
}
