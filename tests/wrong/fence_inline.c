/* finding: fence_missing

   The fence is there, but inline data is copied when the request is posted: before it. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 64);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    EXPECT(send_with(a, part(64), IBV_WR_SEND, 0, IBV_SEND_FENCE | (WRONG ? IBV_SEND_INLINE : 0)) == 0);
    EXPECT(errors_among(3) == 0);
    tear_down();
    return 0;
}
