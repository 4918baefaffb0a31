/* explained: cq_overrun
   says: cqe for every request

   A completion queue that is not polled, and too small. */

#include "wrong.h"

int main(void) {
    set_up();
    int rooms = WRONG ? 2 : 64;
    EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, rooms, NULL, NULL, 0)) != NULL);
    connect_both();
    for (int i = 0; i < 4; i++)
        receive(b, 64);
    for (int i = 0; i < 4; i++)
        EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0);
    EXPECT((errors_among(8) > 0) == WRONG);
    tear_down();
    return 0;
}
