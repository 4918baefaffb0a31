/* finding: endless_wait

   The program waits in poll on an event channel that no id has. */

#include <poll.h>

#include "cm.h"

int main(void) {
    if (WRONG)
        interrupt_later(4);
    begin();
    struct rdma_event_channel *other = rdma_create_event_channel();
    EXPECT(other != NULL);
    struct pollfd wanted = {.fd = WRONG ? other->fd : client->fd, .events = POLLIN};
    EXPECT(poll(&wanted, 1, -1) == (WRONG ? -1 : 1));
    EXPECT(WRONG || rdma_ack_cm_event(next(client, ADDR_RESOLVED)) == 0);
    rdma_destroy_event_channel(other);
    end();
    return 0;
}
