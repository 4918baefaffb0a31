/* finding: too_many_acknowledged

   An event is acknowledged where it is taken, and once more at the end. */

#include "wrong.h"

int main(void) {
    set_up();
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    send_one();
    struct ibv_cq *of;
    void *data;
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    ibv_ack_cq_events(of, 1);
    poll_both();
    if (WRONG)
        ibv_ack_cq_events(cq, 1);
    without_channel();
    tear_down();
    return 0;
}
