/* explained: not_enabled, remote_invalid_request, flushed

   The first failure is overlooked, and what follows is flushed. */

#include "wrong.h"

int main(void) {
    set_up();
    if (WRONG)
        rights = IBV_ACCESS_REMOTE_READ;
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0 && errors_among(1) == WRONG);
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_READ, mr->rkey, 0) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
