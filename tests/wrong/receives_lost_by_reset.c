/* explained: receiver_not_ready, no_receive_request
   says: RESET has discarded 1 receive requests

   A queue pair is connected again over RESET, which discards its receives. */

#include "wrong.h"

int main(void) {
    timeout = 18, retries = 7, rnr_timer = 14; /* only receives are missing */
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    EXPECT(ibv_modify_qp(b, &reset, IBV_QP_STATE) == 0);
    EXPECT(to_init(b, 0) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0 && to_rts(b, 0x100) == 0);
    if (!WRONG)
        receive_at(b, 1024, 512);
    send_one();
    if (WRONG) {
        usleep(1500000); /* others would wait for ever */
        receive_at(b, 1024, 512);
    }
    poll_both();
    tear_down();
    return 0;
}
