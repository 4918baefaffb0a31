/* fails with: reorder

   Data by one queue pair, the message that says so by another. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_qp *data = a, *unused = b;
    connect_both();
    for (int round = 1; round <= ROUNDS; round++) {
        memset(memory, round, 1024);
        receive_at(b, 3072, 8);
        struct ibv_sge sge = part(1024);
        struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
        wr.wr.rdma.remote_addr = (uintptr_t)memory + 1024;
        wr.wr.rdma.rkey = mr->rkey;
        EXPECT(ibv_post_send(data, &wr, &bad) == 0);
        if (!WRONG)
            EXPECT(errors_among(1) == 0);
        EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0);
        struct ibv_wc wc = {0};
        int left = WRONG ? 3 : 2;
        while (wc.opcode != IBV_WC_RECV)
            left -= ibv_poll_cq(cq, 1, &wc);
        EXPECT(memcmp(memory, memory + 1024, 1024) == 0);
        EXPECT(errors_among(left) == 0);
    }
    EXPECT(ibv_destroy_qp(data) == 0 && ibv_destroy_qp(unused) == 0);
    tear_down();
    return 0;
}
