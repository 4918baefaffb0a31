/* finding: too_many_acknowledged

   An asynchronous event is acknowledged where it is taken, and once more at the end. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_srq_init_attr all = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &all);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    EXPECT(srq != NULL && (a = ibv_create_qp(pd, &attr)) != NULL && to_init(a, 0) == 0);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct ibv_async_event event;
    EXPECT(ibv_modify_qp(a, &error, IBV_QP_STATE) == 0 && ibv_get_async_event(context, &event) == 0);
    EXPECT(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
    ibv_ack_async_event(&event);
    if (WRONG)
        ibv_ack_async_event(&event);
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_srq(srq) == 0);
    a = NULL;
    tear_down();
    return 0;
}
