/* explained: inline_read

   IBV_SEND_INLINE for everything, READs too. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    int done = send_with(a, part(8), IBV_WR_RDMA_READ, mr->rkey, WRONG ? IBV_SEND_INLINE : 0);
    EXPECT((done != 0) == WRONG && (WRONG || errors_among(1) == 0));
    tear_down();
    return 0;
}
