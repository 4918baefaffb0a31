/* finding: endless_wait

   The completion queue is armed for the first event, and not again for the second, which is waited
   for in select. */

#include <sys/select.h>

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(4);
    set_up();
    with_channel();
    connect_both();
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    for (int i = 0; i < 2; i++) {
        receive_at(b, 1024, 512);
        send_one();
        fd_set wanted;
        FD_ZERO(&wanted);
        FD_SET(channel->fd, &wanted);
        int is_lost = WRONG && i == 1;
        EXPECT(select(channel->fd + 1, &wanted, NULL, NULL, NULL) == (is_lost ? -1 : 1));
        EXPECT(is_lost || event_comes());
        EXPECT(WRONG || ibv_req_notify_cq(cq, 0) == 0);
        poll_both();
    }
    without_channel();
    tear_down();
    return 0;
}
