/* finding: request_unreadable

   The next of the last request for a shared receive queue is never set. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_srq *srq;
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    EXPECT((srq = ibv_create_srq(pd, &attr)) != NULL);
    struct ibv_recv_wr list[2], *bad;
    memset(list, 0xA5, sizeof list); /* as a stack may have it */
    struct ibv_sge sge = {.addr = (uintptr_t)memory + 1024, .length = 64, .lkey = mr->lkey};
    for (int i = 0; i < 2; i++) {
        list[i].wr_id = i;
        list[i].sg_list = &sge;
        list[i].num_sge = i;
    }
    list[0].next = &list[1];
    if (!WRONG)
        list[1].next = NULL;
    EXPECT(context->ops.post_srq_recv(srq, list, &bad) == (WRONG ? EFAULT : 0));
    EXPECT(ibv_destroy_srq(srq) == 0);
    tear_down();
    return 0;
}
