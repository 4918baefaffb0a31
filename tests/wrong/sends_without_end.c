/* finding: request_unreadable

   The next of the last send is never set. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_send_wr list[2], *bad;
    memset(list, 0xA5, sizeof list); /* as a stack may have it */
    struct ibv_sge sge = part(64);
    for (int i = 0; i < 2; i++) {
        list[i].wr_id = i;
        list[i].sg_list = &sge;
        list[i].num_sge = 1;
        list[i].opcode = IBV_WR_RDMA_WRITE;
        list[i].send_flags = 0;
        list[i].wr.rdma.remote_addr = (uintptr_t)memory + 2048;
        list[i].wr.rdma.rkey = mr->rkey;
    }
    list[0].next = &list[1];
    if (!WRONG)
        list[1].next = NULL;
    EXPECT(ibv_post_send(a, list, &bad) == (WRONG ? EFAULT : 0) && errors_among(2) == 0);
    tear_down();
    return 0;
}
