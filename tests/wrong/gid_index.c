/* explained: gid_index

   sgid_index of another host: the tables differ. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = a->qp_num,
        .ah_attr = {.grh = {.dgid = gid, .sgid_index = WRONG ? 9 : 0}, .is_global = 1, .port_num = 1}, .max_dest_rd_atomic = 1, .min_rnr_timer = 1};
    int done = ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    EXPECT((done != 0) == WRONG);
    tear_down();
    return 0;
}
