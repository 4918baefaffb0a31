/* finding: fence_missing

   The old value is fetched and the new one written at once: if the answer is lost, the READ is repeated, and finds the
   new one. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_sge new = {.addr = (uintptr_t)memory + 512, .length = 8, .lkey = mr->lkey};
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    EXPECT(send_with(a, new, IBV_WR_RDMA_WRITE, mr->rkey, WRONG ? 0 : IBV_SEND_FENCE) == 0);
    EXPECT(errors_among(2) == 0);
    tear_down();
    return 0;
}
