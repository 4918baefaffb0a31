/* explained: post_state

   Receives are posted before the queue pair is in INIT. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    struct ibv_sge sge = part(64);
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(WRONG || to_init(a, 0) == 0);
    EXPECT((ibv_post_recv(a, &wr, &bad) != 0) == WRONG);
    tear_down();
    return 0;
}
