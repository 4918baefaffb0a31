/* explained: too_many_sges
   says: ibv_post_send 8, request 2 of its list

   One send of a list has more elements than the queue pair takes. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_sge sges[3] = {part(8), part(8), part(8)};
    struct ibv_send_wr second = {.wr_id = 8, .sg_list = sges, .num_sge = WRONG ? 3 : 2, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    second.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
    second.wr.rdma.rkey = mr->rkey;
    struct ibv_send_wr first = second;
    first.wr_id = 7;
    first.next = &second;
    first.num_sge = 1;
    EXPECT((ibv_post_send(a, &first, &bad) == EINVAL) == WRONG && (!WRONG || bad == &second));
    EXPECT(errors_among(WRONG ? 1 : 2) == 0);
    tear_down();
    return 0;
}
