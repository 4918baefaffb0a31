/* finding: fence_missing

   What one queue pair fetches is sent by another, for which no fence helps. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(a, 1024, 64);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    EXPECT(WRONG || errors_among(1) == 0);
    EXPECT(send_with(b, part(64), IBV_WR_SEND, 0, IBV_SEND_FENCE) == 0);
    EXPECT(errors_among(WRONG ? 3 : 2) == 0);
    tear_down();
    return 0;
}
