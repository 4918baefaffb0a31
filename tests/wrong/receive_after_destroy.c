/* finding: used_after_destroy

   The handler of a message posts its buffer again, to a queue pair that is gone. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_sge sge = part(64);
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_qp *qp = b;
    b = NULL;
    EXPECT(WRONG || ibv_post_recv(qp, &wr, &bad) == 0);
    EXPECT(ibv_destroy_qp(qp) == 0 && (!WRONG || ibv_post_recv(qp, &wr, &bad) != 0));
    tear_down();
    return 0;
}
