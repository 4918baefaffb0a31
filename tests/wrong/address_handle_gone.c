/* finding: address_handle_in_use

   The address handle of a datagram is destroyed as soon as that is posted. */

#include "wrong.h"

int main(void) {
    set_up();
    datagrams();
    receive(b, 540);
    struct ibv_ah_attr way = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    struct ibv_sge sge = {.addr = (uintptr_t)memory + 2048, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = b->qp_num;
    wr.wr.ud.remote_qkey = 0x11111111;
    EXPECT(ah != NULL && ibv_post_send(a, &wr, &bad) == 0 && (!WRONG || ibv_destroy_ah(ah) == 0));
    EXPECT(errors_among(2) == 0 && (WRONG || ibv_destroy_ah(ah) == 0));
    tear_down();
    return 0;
}
