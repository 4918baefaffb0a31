/* finding: send_buffer_changed

   The message stands on the stack of a function that has returned when it is sent. */

#include "wrong.h"

static __attribute__((noinline)) struct ibv_mr *send_from_stack(void) {
    char text[512];
    memset(text, 7, sizeof text);
    struct ibv_mr *other = ibv_reg_mr(pd, text, sizeof text, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(other != NULL);
    EXPECT(send_with(a, (struct ibv_sge){(uintptr_t)text, sizeof text, other->lkey}, IBV_WR_SEND, 0, 0) == 0);
    return other;
}

static __attribute__((noinline)) int use_stack(int value) {
    volatile char other[2048];
    for (size_t i = 0; i < sizeof other; i++)
        other[i] = value;
    return other[100];
}

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    struct ibv_mr *other = WRONG ? send_from_stack() : NULL;
    if (!WRONG)
        send_one();
    EXPECT(use_stack(3) != 0);
    poll_both();
    EXPECT(other == NULL || ibv_dereg_mr(other) == 0);
    tear_down();
    return 0;
}
