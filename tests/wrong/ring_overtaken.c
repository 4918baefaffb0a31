/* finding: send_buffer_changed

   A ring of slots, each used again after four messages, whether the first is complete or not. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 6; i++) {
        int slot = i % 4;
        if (!WRONG && i >= 4)
            EXPECT(errors_among(1) == 0);
        memset(memory + 256 * slot, i + 1, 256);
        struct ibv_sge sge = {.addr = (uintptr_t)memory + 256 * slot, .length = 256, .lkey = mr->lkey};
        EXPECT(send_with(a, sge, IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
    }
    EXPECT(errors_among(WRONG ? 6 : 4) == 0);
    tear_down();
    return 0;
}
