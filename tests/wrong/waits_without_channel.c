/* finding: endless_wait

   The completion queue was made without the channel that the program waits on. */

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(2);
    set_up();
    with_channel();
    struct ibv_cq *own = cq;
    if (WRONG)
        EXPECT(ibv_destroy_cq(cq) == 0 && (own = cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(WRONG || ibv_req_notify_cq(own, 0) == 0);
    send_one();
    EXPECT(event_comes() == !WRONG);
    poll_both();
    without_channel();
    tear_down();
    return 0;
}
