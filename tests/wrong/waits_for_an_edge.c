/* finding: endless_wait

   Edge-triggered epoll reports two events once, and only one of them is taken. */

#include <fcntl.h>
#include <sys/epoll.h>

#include "wrong.h"

int main(void) {
    if (WRONG)
        interrupt_later(5);
    set_up();
    with_channel();
    struct ibv_cq *received = ibv_create_cq(context, 8, NULL, channel, 0);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = received, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT(received != NULL && (a = ibv_create_qp(pd, &attr)) != NULL && (b = ibv_create_qp(pd, &attr)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    EXPECT(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int epoll = epoll_create1(0), done = 0;
    EXPECT(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &event) == 0);
    EXPECT(ibv_req_notify_cq(cq, 0) == 0 && ibv_req_notify_cq(received, 0) == 0);
    receive_at(b, 1024, 512);
    send_one();
    wait_a_while(); /* both events are there */
    while (done < 2 && epoll_wait(epoll, &event, 1, -1) == 1) {
        struct ibv_cq *of;
        struct ibv_wc wc;
        void *data;
        while (ibv_get_cq_event(channel, &of, &data) == 0) {
            ibv_ack_cq_events(of, 1);
            EXPECT(ibv_poll_cq(of, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
            done++;
            if (WRONG)
                break;
        }
    }
    EXPECT(done == (WRONG ? 1 : 2) && close(epoll) == 0);
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
    a = b = NULL;
    struct ibv_cq *of;
    void *data;
    if (WRONG && ibv_get_cq_event(channel, &of, &data) == 0)
        ibv_ack_cq_events(of, 1);
    EXPECT(ibv_destroy_cq(received) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    EXPECT((cq = ibv_create_cq(context, 1, NULL, NULL, 0)) != NULL);
    tear_down();
    return 0;
}
