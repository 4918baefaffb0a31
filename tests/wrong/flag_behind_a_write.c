/* fails with: reorder

   A second WRITE, of a flag, is taken for a sign that the first is there; nothing orders the two. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int round = 1; round <= ROUNDS; round++) {
        char value = round;
        memset(memory, value, 513);
        struct ibv_sge sge = part(512), flag = part(1);
        struct ibv_send_wr second = {.wr_id = 2, .sg_list = &flag, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
        struct ibv_send_wr first = {.wr_id = 1, .next = &second, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
        first.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
        second.wr.rdma.remote_addr = (uintptr_t)memory + 3072;
        first.wr.rdma.rkey = second.wr.rdma.rkey = mr->rkey;
        if (!WRONG) { /* the flag when the first is complete */
            first.next = NULL;
            EXPECT(ibv_post_send(a, &first, &bad) == 0 && errors_among(1) == 0 && ibv_post_send(a, &second, &bad) == 0);
        } else {
            EXPECT(ibv_post_send(a, &first, &bad) == 0);
        }
        while (*(volatile char *)(memory + 3072) != value)
            ;
        for (int i = 0; i < 512; i++)
            EXPECT(((volatile char *)memory)[2048 + i] == value);
        EXPECT(errors_among(1 + WRONG) == 0);
    }
    tear_down();
    return 0;
}
