/* explained: too_many_sges
   says: num_sge is 3 and the queue's limit is 2

   More pieces than the queue pair was made for. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive(b, 64);
    struct ibv_sge list[3] = {part(8), part(8), part(8)};
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = list, .num_sge = WRONG ? 3 : 2, .opcode = IBV_WR_SEND}, *bad;
    EXPECT(ibv_post_send(a, &wr, &bad) == (WRONG ? EINVAL : 0));
    tear_down();
    return 0;
}
