/* explained: receiver_not_ready, no_receive_request
   says: arm it again after each IBV_EVENT_SRQ_LIMIT_REACHED

   A shared receive queue is filled when its limit is reached, and the limit is not armed again. */

#include <fcntl.h>

#include "wrong.h"

static struct ibv_srq *srq;

static void fill(void) {
    struct ibv_srq_attr limit = {.srq_limit = 1};
    struct ibv_sge sge = {.addr = (uintptr_t)memory + 1024, .length = 512, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    static int times;
    for (int i = 0; i < 2; i++)
        EXPECT(context->ops.post_srq_recv(srq, &wr, &bad) == 0);
    if (times++ == 0 || !WRONG)
        EXPECT(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
}

static int take_events(void) {
    struct ibv_async_event event;
    int number = 0;
    for (; ibv_get_async_event(context, &event) == 0; number++) {
        EXPECT(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
        ibv_ack_async_event(&event);
    }
    return number;
}

int main(void) {
    timeout = 18, retries = 7, rnr_timer = 14; /* only receives are missing */
    set_up();
    EXPECT(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    EXPECT((srq = ibv_create_srq(pd, &init)) != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    EXPECT((b = ibv_create_qp(pd, &attr)) != NULL);
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    fill();
    for (int i = 0; i < 5; i++) {
        send_one();
        if (WRONG && i == 4) {
            usleep(1500000); /* others would wait for ever */
            fill();
        }
        poll_both();
        wait_a_while();
        if (take_events() > 0)
            fill();
    }
    EXPECT(ibv_destroy_qp(b) == 0);
    b = NULL;
    take_events();
    EXPECT(ibv_destroy_srq(srq) == 0);
    tear_down();
    return 0;
}
