/* finding: send_buffer_changed

   The buffer of a WRITE is filled anew in a loop, and completions are polled only at its end. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
    if (WRONG)
        memset(memory, 7, 64);
    EXPECT(errors_among(1) == 0);
    memset(memory, 7, 64);
    tear_down();
    return 0;
}
