/* finding: fence_missing

   What a READ fetches is sent on by the next request, which begins before the READ is done. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    memset(memory + 2048, 5, 64);
    receive_at(b, 1024, 64);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    EXPECT(send_with(a, part(64), IBV_WR_SEND, 0, WRONG ? 0 : IBV_SEND_FENCE) == 0);
    EXPECT(errors_among(3) == 0);
    EXPECT(WRONG || memory[1024] == 5);
    tear_down();
    return 0;
}
