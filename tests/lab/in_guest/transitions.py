"""States: the attributes of each transition, and their mask, by the names in the commands."""

from pyverbs import enums
from pyverbs.qp import QPAttr

from translate import MTUS, PORT, address_vector, flags


def reset(_):
    return QPAttr(qp_state=enums.IBV_QPS_RESET), 0


def init(qp, access=(), qkey=0):
    attr = QPAttr(qp_state=enums.IBV_QPS_INIT, port_num=PORT)
    attr.pkey_index = 0
    mask = enums.IBV_QP_PKEY_INDEX | enums.IBV_QP_PORT
    if qp.qp_type == enums.IBV_QPT_UD:
        attr.qkey = qkey
        return attr, mask | enums.IBV_QP_QKEY
    attr.qp_access_flags = flags("IBV_ACCESS_", access)
    return attr, mask | enums.IBV_QP_ACCESS_FLAGS


def rtr(qp, peer=None, rq_psn=0, max_dest_rd_atomic=0, min_rnr_timer=0):
    attr = QPAttr(qp_state=enums.IBV_QPS_RTR)
    if qp.qp_type == enums.IBV_QPT_UD:
        return attr, 0
    attr.ah_attr = address_vector(peer["address"])
    attr.dest_qp_num = peer["qpn"]
    attr.path_mtu = MTUS[peer["path_mtu"]]
    attr.rq_psn = rq_psn
    mask = enums.IBV_QP_AV | enums.IBV_QP_PATH_MTU | enums.IBV_QP_DEST_QPN | enums.IBV_QP_RQ_PSN
    if qp.qp_type == enums.IBV_QPT_UC:
        return attr, mask
    attr.max_dest_rd_atomic = max_dest_rd_atomic
    attr.min_rnr_timer = min_rnr_timer
    return attr, mask | enums.IBV_QP_MAX_DEST_RD_ATOMIC | enums.IBV_QP_MIN_RNR_TIMER


def rts(qp, sq_psn, timeout=0, retry_cnt=0, rnr_retry=0, max_rd_atomic=0):
    attr = QPAttr(qp_state=enums.IBV_QPS_RTS)
    attr.sq_psn = sq_psn
    if qp.qp_type != enums.IBV_QPT_RC:
        return attr, enums.IBV_QP_SQ_PSN
    attr.timeout = timeout
    attr.retry_cnt = retry_cnt
    attr.rnr_retry = rnr_retry
    attr.max_rd_atomic = max_rd_atomic
    return attr, (
        enums.IBV_QP_SQ_PSN
        | enums.IBV_QP_TIMEOUT
        | enums.IBV_QP_RETRY_CNT
        | enums.IBV_QP_RNR_RETRY
        | enums.IBV_QP_MAX_QP_RD_ATOMIC
    )


def resume(_):
    return QPAttr(qp_state=enums.IBV_QPS_RTS), 0


def sqd(_, notify):
    attr = QPAttr(qp_state=enums.IBV_QPS_SQD)
    attr.en_sqd_async_notify = int(notify)
    return attr, enums.IBV_QP_EN_SQD_ASYNC_NOTIFY


def err(_):
    return QPAttr(qp_state=enums.IBV_QPS_ERR), 0
