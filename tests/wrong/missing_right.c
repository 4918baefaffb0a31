/* explained: not_enabled, remote_invalid_request
   says: qp_access_flags

   The region allows what the queue pair does not: qp_access_flags. */

#include "wrong.h"

int main(void) {
    set_up();
    if (WRONG)
        rights = IBV_ACCESS_REMOTE_READ;
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
