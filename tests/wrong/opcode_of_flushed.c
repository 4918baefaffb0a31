/* fails with: json

   Flushed requests are told apart by opcode, which a failed completion does not have. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 4; i++)
        receive_at(b, 1024 + 64 * i, 64);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    EXPECT(ibv_modify_qp(b, &attr, IBV_QP_STATE) == 0);
    EXPECT(send_with(b, part(8), IBV_WR_SEND, 0, 0) == 0);
    int receives = 0;
    for (int polled = 0; polled < 5;) {
        struct ibv_wc wc;
        if (ibv_poll_cq(cq, 1, &wc) == 0)
            continue;
        polled++;
        EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR);
        receives += WRONG ? (wc.opcode & IBV_WC_RECV) != 0 : wc.wr_id == 1;
    }
    EXPECT(receives == 4);
    tear_down();
    return 0;
}
