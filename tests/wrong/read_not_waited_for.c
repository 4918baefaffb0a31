/* fails with: reorder

   A READ on one host takes microseconds: a pause is taken for its completion. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int round = 1; round <= ROUNDS; round++) {
        char value = round;
        memset(memory + 2048, value, 1024);
        EXPECT(send_with(a, part(1024), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
        if (WRONG)
            usleep(1000);
        else
            EXPECT(errors_among(1) == 0);
        for (int i = 0; i < 1024; i++)
            EXPECT(((volatile char *)memory)[i] == value);
        EXPECT(!WRONG || errors_among(1) == 0);
    }
    tear_down();
    return 0;
}
