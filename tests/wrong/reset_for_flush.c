/* finding: reset_discarded

   A queue pair is reset to have its receives flushed, which ERR does. */

#include <time.h>

#include "wrong.h"

/* A completion that comes within a second. */
static int completes(void) {
    struct ibv_wc wc;
    for (time_t begin = time(NULL); time(NULL) <= begin + 1;)
        if (ibv_poll_cq(cq, 1, &wc) == 1)
            return 1;
    return 0;
}

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 4; i++)
        receive_at(b, 64 * i, 64);
    struct ibv_qp_attr attr = {.qp_state = WRONG ? IBV_QPS_RESET : IBV_QPS_ERR};
    EXPECT(ibv_modify_qp(b, &attr, IBV_QP_STATE) == 0);
    int left = 4;
    while (left > 0 && completes())
        left--;
    EXPECT(left == (WRONG ? 4 : 0));
    tear_down();
    return 0;
}
