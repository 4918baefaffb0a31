/* finding: send_buffer_changed

   The message is freed when it is posted, and its memory has soon another use. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    char *text = calloc(1, 512);
    struct ibv_mr *other = ibv_reg_mr(pd, text, 512, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(text && other && send_with(a, (struct ibv_sge){(uintptr_t)text, 512, other->lkey}, IBV_WR_SEND, 0, 0) == 0);
    if (!WRONG)
        poll_both();
    free(text);
    char *next = malloc(512);
    memset(next, 9, 512);
    if (WRONG)
        poll_both();
    free(next);
    EXPECT(ibv_dereg_mr(other) == 0);
    tear_down();
    return 0;
}
