/* explained: out_of_bounds, remote_access
   says: the address has the wrong byte order

   The peer's address is turned into network byte order, and not back. */

#include <endian.h>

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_sge sge = part(64);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    uint64_t address = (uintptr_t)(memory + 2048);
    wr.wr.rdma.remote_addr = WRONG ? htobe64(address) : address;
    wr.wr.rdma.rkey = mr->rkey;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
