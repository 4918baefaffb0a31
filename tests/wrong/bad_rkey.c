/* explained: unknown_key, remote_access
   says: sent NAK remote access error

   The key of the peer is damaged on its way: byte order, or a structure that was packed differently. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey ^ WRONG, 0) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
