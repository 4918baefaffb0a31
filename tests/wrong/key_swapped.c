/* explained: swapped_key, remote_access
   says: one side lacks ntohl or htonl

   The rkey is sent in network byte order, and used as it came. */

#include <arpa/inet.h>

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, WRONG ? htonl(mr->rkey) : mr->rkey, 0) == 0);
    EXPECT((errors_among(1) > 0) == WRONG);
    tear_down();
    return 0;
}
