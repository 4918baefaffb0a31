/* A program that ends as most do: nothing is closed. 30 WRITEs of 1024 bytes have left by then. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 30; i++) {
        EXPECT(send_with(a, part(1024), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
        EXPECT(errors_among(1) == 0);
    }
    return 0;
}
