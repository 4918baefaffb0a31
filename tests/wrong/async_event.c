/* finding: async_events_unacknowledged

   ibv_get_async_event without ibv_ack_async_event; destroying the object hangs. */

#include <pthread.h>

#include "wrong.h"

static struct ibv_async_event event;

static void *acknowledge_late(void *unused) {
    sleep(4);
    ibv_ack_async_event(&event);
    return unused;
}

int main(void) {
    set_up();
    struct ibv_srq_init_attr all = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &all);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    EXPECT(srq != NULL && (a = ibv_create_qp(pd, &attr)) != NULL && to_init(a, 0) == 0);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    EXPECT(ibv_modify_qp(a, &error, IBV_QP_STATE) == 0 && ibv_get_async_event(context, &event) == 0);
    EXPECT(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
    pthread_t thread;
    if (WRONG) /* or it would wait for ever */
        EXPECT(pthread_create(&thread, NULL, acknowledge_late, NULL) == 0);
    else {
        EXPECT(a->events_completed == 0);
        ibv_ack_async_event(&event);
        EXPECT(a->events_completed == 1);
    }
    EXPECT(ibv_destroy_qp(a) == 0 && (!WRONG || pthread_join(thread, NULL) == 0) && ibv_destroy_srq(srq) == 0);
    a = NULL;
    tear_down();
    return 0;
}
