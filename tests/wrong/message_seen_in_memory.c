/* fails with: reorder

   The receive buffer is polled for the message, and not the completion queue. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    char *to = memory + 2048;
    for (int round = 1; round <= ROUNDS; round++) {
        char value = round;
        struct ibv_sge sge = {.addr = (uintptr_t)to, .length = 1024, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
        EXPECT(ibv_post_recv(b, &wr, &bad) == 0);
        memset(memory, value, 1024);
        EXPECT(send_with(a, part(1024), IBV_WR_SEND, 0, 0) == 0);
        if (WRONG)
            while (((volatile char *)to)[1023] != value)
                ;
        else
            poll_both();
        for (int i = 0; i < 1024; i++)
            EXPECT(((volatile char *)to)[i] == value);
        if (WRONG)
            poll_both();
    }
    tear_down();
    return 0;
}
