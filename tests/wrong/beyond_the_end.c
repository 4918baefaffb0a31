/* explained: out_of_bounds, remote_access
   says: , 4096 bytes at 0x

   The last block of a buffer whose length is no multiple of it. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_sge sge = part(64);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + sizeof memory - (WRONG ? 32 : 64);
    wr.wr.rdma.rkey = mr->rkey;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
