/* finding: reads_exceed_peer

   As many READs at a time as the device can do; the peer has room for one. */

#include "wrong.h"

int main(void) {
    set_up();
    reads = WRONG ? 16 : 1;
    connect_both();
    for (int i = 0; i < 4; i++) { /* few and small: they are lucky */
        EXPECT(send_with(a, part(8), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
        EXPECT(errors_among(1) == 0);
    }
    tear_down();
    return 0;
}
