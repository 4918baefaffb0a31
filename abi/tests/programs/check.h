/* What programs beside this file share: conditions, and a queue pair of the loopback device. */

#include "expect.h"
#include "loopback.h"

/* Moves a queue pair to RTS, connected with another. */
static inline void connect_with(struct ibv_qp *qp, union ibv_gid gid, uint32_t qpn) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn,
        .ah_attr = {.grh = {.dgid = gid, .hop_limit = 3}, .is_global = 1, .port_num = 1}, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
        .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                        IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* The same, with itself. */
static inline void connect_with_itself(struct ibv_qp *qp) {
    union ibv_gid gid;
    EXPECT(ibv_query_gid(qp->context, 1, 0, &gid) == 0);
    connect_with(qp, gid, qp->qp_num);
}
