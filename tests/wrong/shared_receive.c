/* finding: receive_overlap

   All requests of a shared receive queue have one buffer. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_srq *srq;
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    EXPECT((srq = ibv_create_srq(pd, &attr)) != NULL);
    for (int i = 0; i < 2; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)memory + 1024 + (WRONG ? 0 : 512 * i), .length = 512, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
        EXPECT(context->ops.post_srq_recv(srq, &wr, &bad) == 0);
    }
    EXPECT(ibv_destroy_srq(srq) == 0);
    tear_down();
    return 0;
}
