/* explained: too_many_sges
   says: ibv_post_recv 8, request 2 of its list

   One request of a list has more elements than the queue pair takes. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_sge sges[2] = {part(64), part(64)};
    struct ibv_recv_wr second = {.wr_id = 8, .sg_list = sges, .num_sge = WRONG ? 2 : 1}, *bad;
    struct ibv_recv_wr first = {.wr_id = 7, .next = &second, .sg_list = sges, .num_sge = 1};
    EXPECT((ibv_post_recv(b, &first, &bad) == EINVAL) == WRONG && (!WRONG || bad == &second));
    tear_down();
    return 0;
}
