/* fails with: json

   Immediate data is read of a message without any. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    send_one();
    for (int left = 2; left > 0;) {
        struct ibv_wc wc;
        int count = ibv_poll_cq(cq, 1, &wc);
        EXPECT(count == 0 || (count == 1 && wc.status == IBV_WC_SUCCESS));
        left -= count;
        if (count && wc.opcode == IBV_WC_RECV && (WRONG || wc.wc_flags & IBV_WC_WITH_IMM))
            EXPECT(wc.imm_data == 0);
    }
    tear_down();
    return 0;
}
