/* explained: local_operation

   A WRITE over datagrams, which have none. */

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
    receive(b, 540);
    int done = datagram(500, WRONG ? IBV_WR_RDMA_WRITE : IBV_WR_SEND);
    EXPECT(WRONG ? done != 0 || errors_among(1) > 0 : done == 0 && errors_among(2) == 0);
    EXPECT(ibv_destroy_ah(ah) == 0 && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
