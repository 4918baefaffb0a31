/* fails with: reorder

   The last byte of a WRITE is taken for a sign that all of it is there. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    volatile char *target = memory + 2048;
    for (int round = 1; round <= ROUNDS; round++) {
        char value = round;
        memset(memory, value, 1024);
        EXPECT(send_with(a, part(1024), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
        if (WRONG)
            while (target[1023] != value)
                ;
        else
            EXPECT(errors_among(1) == 0);
        for (int i = 0; i < 1024; i++)
            EXPECT(target[i] == value);
        EXPECT(!WRONG || errors_among(1) == 0);
    }
    tear_down();
    return 0;
}
