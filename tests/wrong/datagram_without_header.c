/* explained: too_long

   The receive of a datagram has no room for the 40 bytes of the GRH. */

#include "wrong.h"

static char large[8192];
static struct ibv_mr *region;

static struct ibv_ah *ah;

static int datagram(uint32_t length, int opcode) {
    struct ibv_ah_attr way = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    EXPECT(ah != NULL || (ah = ibv_create_ah(pd, &way)) != NULL);
    struct ibv_sge sge = {.addr = (uintptr_t)large, .length = length, .lkey = region->lkey};
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = b->qp_num;
    wr.wr.ud.remote_qkey = 0x11111111;
    return ibv_post_send(a, &wr, &bad);
}

int main(void) {
    set_up();
    EXPECT((region = ibv_reg_mr(pd, large, sizeof large, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    datagrams();
    receive(b, WRONG ? 500 : 540);
    EXPECT(datagram(500, IBV_WR_SEND) == 0 && errors_among(2 - WRONG) == 0);
    for (int i = 0; i < 10000 && WRONG; i++) /* it arrives meanwhile */
        EXPECT(ibv_poll_cq(cq, 1, &(struct ibv_wc){0}) == 0);
    EXPECT(ibv_destroy_ah(ah) == 0 && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
