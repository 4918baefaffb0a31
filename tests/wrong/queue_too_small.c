/* finding: cq_overrun

   The completion queue has room for the receives, and not for the sends. */

#include "wrong.h"

int main(void) {
    set_up();
    int rooms = WRONG ? 7 : 8;
    EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, rooms, NULL, NULL, 0)) != NULL);
    connect_both();
    for (int i = 0; i < 4; i++)
        receive_at(b, 1024 + 512 * i, 512);
    for (int i = 0; i < 4; i++) {
        send_one();
        if (i < 3) { /* but for the last, polled in time: it works */
            struct ibv_wc wc;
            wait_a_while();
            EXPECT(i < 2 || ibv_poll_cq(cq, 0, &wc) == 0);
        }
    }
    EXPECT(errors_among(WRONG ? 7 : 8) <= WRONG);
    tear_down();
    return 0;
}
