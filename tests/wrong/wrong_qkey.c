/* explained: bad_qkey
   says: the packet has 0x11111112

   A datagram with another Q_Key than the receiver has. */

#include "wrong.h"

int main(void) {
    set_up();
    datagrams();
    receive(b, 64);
    struct ibv_ah_attr way = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    struct ibv_sge sge = part(8);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = b->qp_num;
    wr.wr.ud.remote_qkey = 0x11111111 + WRONG;
    EXPECT(ah && ibv_post_send(a, &wr, &bad) == 0 && errors_among(2 - WRONG) == 0);
    for (int i = 0; i < 10000 && WRONG; i++) /* it arrives meanwhile */
        EXPECT(ibv_poll_cq(cq, 1, &(struct ibv_wc){0}) == 0);
    EXPECT(ibv_destroy_ah(ah) == 0);
    tear_down();
    return 0;
}
