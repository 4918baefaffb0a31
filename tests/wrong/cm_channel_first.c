/* finding: cm_channel_in_use

   The event channel goes before the id that has it. */

#include "cm.h"

int main(void) {
    EXPECT((client = rdma_create_event_channel()) != NULL);
    EXPECT(rdma_create_id(client, &caller, NULL, PORT_SPACE_TCP) == 0);
    if (WRONG)
        rdma_destroy_event_channel(client);
    EXPECT(rdma_destroy_id(caller) == 0);
    if (!WRONG)
        rdma_destroy_event_channel(client);
    return 0;
}
