/* finding: read_target_written

   The target of a READ is used before its completion: it has come, as far as can be seen. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    wait_a_while();
    if (WRONG)
        memory[5]++;
    EXPECT(errors_among(1) == 0);
    memory[5]++;
    tear_down();
    return 0;
}
