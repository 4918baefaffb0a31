/* explained: too_many_sges
   says: ibv_post_srq_recv 8, request 2 of its list

   One request of a list has more elements than the shared receive queue takes. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_srq *srq;
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    EXPECT((srq = ibv_create_srq(pd, &attr)) != NULL);
    struct ibv_sge sges[2] = {part(64), part(64)};
    struct ibv_recv_wr second = {.wr_id = 8, .sg_list = sges, .num_sge = WRONG ? 2 : 1}, *bad;
    struct ibv_recv_wr first = {.wr_id = 7, .next = &second, .sg_list = sges, .num_sge = 1};
    EXPECT((context->ops.post_srq_recv(srq, &first, &bad) == EINVAL) == WRONG && (!WRONG || bad == &second));
    EXPECT(ibv_destroy_srq(srq) == 0);
    tear_down();
    return 0;
}
