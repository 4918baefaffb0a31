/* explained: queue_full
   says: poll completions

   More receives than max_recv_wr. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 8; i++)
        receive(b, 64);
    struct ibv_sge sge = part(64);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if (WRONG)
        EXPECT(ibv_post_recv(b, &wr, &bad) == ENOMEM);
    tear_down();
    return 0;
}
