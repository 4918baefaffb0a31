/* fails with: json

   Receives that are left are counted by opcode, which means nothing in a completion that has failed. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    int receives = 1, sends = 1;
    receive_at(b, 1024, 64);
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey + 1, 0) == 0);
    while (sends + receives > 0) { /* both fail */
        struct ibv_wc wc;
        int count = ibv_poll_cq(cq, 1, &wc);
        EXPECT(count == 0 || (count == 1 && wc.status != IBV_WC_SUCCESS));
        if (count == 0)
            continue;
        if (WRONG ? wc.opcode == IBV_WC_RDMA_WRITE || wc.opcode == IBV_WC_SEND : wc.wr_id == 7)
            sends--;
        else
            receives--;
        EXPECT(receives >= 0);
    }
    tear_down();
    return 0;
}
