/* explained: local_operation

   max_rd_atomic 0, since there were only WRITEs; now there is a READ. */

#include "wrong.h"

int main(void) {
    set_up();
    reads = !WRONG;
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_READ, mr->rkey, 0) == 0 && errors_among(1) == WRONG);
    tear_down();
    return 0;
}
