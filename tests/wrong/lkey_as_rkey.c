/* finding: lkey_as_rkey

   The peer is given the lkey, which equals the rkey with some adapters. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    uint32_t key = WRONG ? mr->lkey : mr->rkey;
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, key, 0) == 0);
    EXPECT(errors_among(1) == WRONG);
    tear_down();
    return 0;
}
