/* One mistake each that works by luck, which MISTAKE names: the library finds it when it is asked to check. With REPAIRED the same
   program without the mistake, of which nothing is found. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

/* Completions are polled when there are so many, by sleeping and not by looking: nothing is looked at before. */
static void wait_a_while(void) {
    usleep(50000);
}

/* Waits until what was sent has arrived, without a look at the completions. */
static void wait_for_data(void) {
    while (*(volatile char *)(memory + 1024) != 1)
        usleep(1000);
    wait_a_while();
}

static void receive_at(struct ibv_qp *qp, int at, uint32_t length) {
    struct ibv_sge sge = {.addr = (uintptr_t)memory + at, .length = length, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* Sends what stands first in the memory; what is received stands from 1024 on. */
static void send_one(void) {
    EXPECT(send_with(a, part(512), IBV_WR_SEND, 0, 0) == 0);
}

static void poll_both(void) {
    EXPECT(errors_among(2) == 0);
}

/* Mistakes. */

static void send_changed(void) {
    connect_both();
    receive_at(b, 1024, 512);
    send_one();
    if (wrong)
        memory[300]++;
    poll_both();
    memory[300]++;
}

static void unsignaled_send_changed(void) {
    rooms = 64;
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1}};
    connect_both();
    struct ibv_qp *made = a;
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL && ibv_destroy_qp(made) == 0);
    EXPECT(ibv_destroy_qp(b) == 0 && (b = make(IBV_QPT_RC)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0 && to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
    if (wrong) /* its completion is that of the next one */
        memory[1]++;
    struct ibv_sge sge = {.addr = (uintptr_t)memory + 512, .length = 64, .lkey = mr->lkey};
    EXPECT(send_with(a, sge, IBV_WR_RDMA_WRITE, mr->rkey, IBV_SEND_SIGNALED) == 0 && errors_among(1) == 0);
    memory[1]++;
}

static void write_changed(void) {
    connect_both();
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
    if (wrong)
        memset(memory, 7, 64);
    EXPECT(errors_among(1) == 0);
    memset(memory, 7, 64);
}

static void inline_is_copied(void) {
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(send_with(a, part(64), IBV_WR_SEND, 0, wrong ? 0 : IBV_SEND_INLINE) == 0);
    memory[3]++;
    poll_both();
}

static void send_overwritten(void) {
    connect_both();
    receive_at(b, wrong ? 256 : 1024, 512);
    memory[0] = 1;
    send_one();
    poll_both();
}

static void receive_twice(void) {
    connect_both();
    receive_at(b, 1024, 512);
    receive_at(b, wrong ? 1024 : 1536, 512);
}

static void receives_overlap(void) {
    connect_both();
    receive_at(b, 1024, 513 - !wrong);
    receive_at(a, 1536, 512);
}

static void receive_again(void) { /* as soon as it has completed, it may be posted again */
    connect_both();
    for (int i = 0; i < 20; i++) {
        receive_at(b, 1024, 512);
        if (wrong)
            memory[1024]++;
        send_one();
        poll_both();
        memset(memory + 1024, i, 512);
    }
}

static void receive_written_behind(void) { /* behind the message, and in the buffer */
    connect_both();
    receive_at(b, 1024, 1024);
    send_one();
    if (wrong)
        memory[2000]++;
    poll_both();
    memory[2000]++;
}

static void read_target(void) {
    connect_both();
    EXPECT(send_with(a, part(64), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    wait_a_while();
    if (wrong)
        memory[5]++;
    EXPECT(errors_among(1) == 0);
    memory[5]++;
}

static struct ibv_srq *srq;

static void shared_receive(void) {
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    EXPECT((srq = ibv_create_srq(pd, &attr)) != NULL);
    for (int i = 0; i < 2; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)memory + 1024 + (wrong ? 0 : 512 * i), .length = 512, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
        EXPECT(context->ops.post_srq_recv(srq, &wr, &bad) == 0);
    }
    EXPECT(ibv_destroy_srq(srq) == 0);
}

static void unmapped(void) {
    connect_both();
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *other = ibv_reg_mr(pd, pages, 8192, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(pages != MAP_FAILED && other != NULL);
    pages[0] = 1;
    receive_at(b, 1024, 512);
    EXPECT(send_with(a, (struct ibv_sge){(uintptr_t)pages, 64, other->lkey}, IBV_WR_SEND, 0, 0) == 0);
    wait_for_data();
    if (wrong)
        EXPECT(munmap(pages, 8192) == 0);
    poll_both();
    EXPECT(ibv_dereg_mr(other) == 0 && (wrong || munmap(pages, 8192) == 0));
}

static void region_in_use(void) {
    connect_both();
    static char bytes[64];
    struct ibv_mr *other = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = sizeof bytes, .lkey = other->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(b, &wr, &bad) == 0);
    if (!wrong) {
        EXPECT(ibv_destroy_qp(b) == 0);
        b = NULL;
    }
    EXPECT(ibv_dereg_mr(other) == 0);
}

static void queue_too_small(void) {
    rooms = wrong ? 7 : 8;
    EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, rooms, NULL, NULL, 0)) != NULL);
    connect_both();
    for (int i = 0; i < 4; i++)
        receive_at(b, 1024 + 512 * i, 512);
    for (int i = 0; i < 4; i++) {
        send_one();
        if (i < 3) { /* but for the last, polled in time: it works */
            struct ibv_wc wc;
            wait_a_while();
            EXPECT(i < 2 || ibv_poll_cq(cq, 0, &wc) == 0);
        }
    }
    EXPECT(errors_among(wrong ? 7 : 8) <= wrong);
}

static void nothing_signaled(void) {
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL);
    EXPECT(to_init(a, 0) == 0 && ibv_modify_qp(a, &rtr, IBV_QP_STATE) == 0);
    EXPECT(ibv_modify_qp(a, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    struct ibv_ah_attr way = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    for (int i = 0; i < 20; i++) {
        int is_signaled = !wrong && i % 2;
        struct ibv_sge sge = part(8);
        struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
            .send_flags = is_signaled ? IBV_SEND_SIGNALED : 0}, *bad;
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = a->qp_num;
        wr.wr.ud.remote_qkey = 0x11111111;
        while (ibv_post_send(a, &wr, &bad) == ENOMEM)
            usleep(1000);
        if (is_signaled)
            EXPECT(errors_among(1) == 0);
        wait_a_while();
    }
    EXPECT(ibv_destroy_ah(ah) == 0);
}

static void too_many_sends(void) {
    connect_both();
    for (int i = 0; i < 20; i++) { /* of 8 */
        while (send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == ENOMEM) /* here room comes back without a look */
            usleep(1000);
        if (!wrong)
            EXPECT(errors_among(1) == 0);
        usleep(10000);
    }
    EXPECT(errors_among(wrong ? 20 : 0) == 0);
}

/* A completion queue with a channel. */
static struct ibv_comp_channel *channel;

static void with_channel(void) {
    EXPECT((channel = ibv_create_comp_channel(context)) != NULL && ibv_destroy_cq(cq) == 0);
    EXPECT((cq = ibv_create_cq(context, 64, NULL, channel, 0)) != NULL);
}

static void without_channel(void) {
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    a = b = NULL;
    EXPECT((cq = ibv_create_cq(context, 1, NULL, NULL, 0)) != NULL);
}

static void *acknowledge_late(void *of) {
    sleep(2);
    ibv_ack_cq_events(of, 1);
    return NULL;
}

static void not_acknowledged(void) {
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    send_one();
    struct ibv_cq *of;
    void *data;
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    poll_both();
    pthread_t thread;
    if (wrong) /* or it would wait for ever */
        EXPECT(pthread_create(&thread, NULL, acknowledge_late, cq) == 0);
    else
        ibv_ack_cq_events(cq, 1);
    without_channel();
    EXPECT(!wrong || pthread_join(thread, NULL) == 0);
}

static void *send_late(void *unused) {
    usleep(400000);
    send_one();
    return unused;
}

/* The right order: armed, polled, waited. The wrong one: polled, armed, waited. */
static void wait_for_one(int arm_first) {
    struct ibv_cq *of;
    struct ibv_wc wc;
    void *data;
    int count = 0;
    if (arm_first)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    count += ibv_poll_cq(cq, 1, &wc);
    EXPECT(count == 0);
    if (!arm_first)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    ibv_ack_cq_events(cq, 1);
}

static void lost_by_luck(void) { /* not this time */
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, send_late, NULL) == 0);
    wait_for_one(!wrong);
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
    without_channel();
}

static void lost(void) { /* the completion is there when the queue is armed */
    with_channel();
    connect_both();
    receive_at(b, 1024, 512);
    receive_at(b, 1536, 512);
    if (!wrong)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    memory[0] = 1;
    send_one();
    wait_for_data();
    if (wrong)
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    pthread_t thread;
    EXPECT(!wrong || pthread_create(&thread, NULL, send_late, NULL) == 0);
    struct ibv_cq *of;
    void *data;
    EXPECT(ibv_get_cq_event(channel, &of, &data) == 0);
    ibv_ack_cq_events(cq, 1);
    EXPECT(!wrong || pthread_join(thread, NULL) == 0);
    EXPECT(errors_among(wrong ? 4 : 2) == 0);
    without_channel();
}

static void alive(void) {
    struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
    EXPECT(other != NULL);
    if (!wrong)
        EXPECT(ibv_destroy_cq(other) == 0);
}

static void destroyed_twice(void) {
    struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
    EXPECT(ibv_destroy_cq(other) == 0 && (!wrong || ibv_destroy_cq(other) == ENOENT));
}

static void posted_after_destroy(void) {
    connect_both();
    struct ibv_qp *gone = a;
    a = NULL;
    EXPECT(ibv_destroy_qp(gone) == 0 && (!wrong || send_with(gone, part(8), IBV_WR_SEND, 0, 0) == EINVAL));
}

static void polled_after_destroy(void) {
    struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_wc wc;
    EXPECT(ibv_destroy_cq(other) == 0 && (!wrong || ibv_poll_cq(other, 1, &wc) == -1));
}

static void no_timeout(void) {
    timeout = wrong ? 0 : 14;
    connect_both();
}

/* From INIT to RTS with these. */
static void settings(int retries, int rnr_timer) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1, .min_rnr_timer = rnr_timer,
        .ah_attr = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1}, .timeout = 14, .retry_cnt = retries, .rnr_retry = 7};
    a = make(IBV_QPT_RC);
    attr.dest_qp_num = a->qp_num;
    EXPECT(to_init(a, 0) == 0 && ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void no_retry(void) {
    settings(wrong ? 0 : 7, 12);
}

static void longest_rnr_timer(void) {
    settings(7, wrong ? 0 : 12);
}

#define MISTAKE(name) {#name, name}
static const struct mistake MISTAKES[] = {MISTAKE(send_changed), MISTAKE(unsignaled_send_changed), MISTAKE(write_changed),
    MISTAKE(inline_is_copied), MISTAKE(send_overwritten), MISTAKE(receive_twice), MISTAKE(receives_overlap), MISTAKE(receive_again),
    MISTAKE(receive_written_behind), MISTAKE(read_target), MISTAKE(shared_receive), MISTAKE(unmapped), MISTAKE(region_in_use),
    MISTAKE(queue_too_small), MISTAKE(nothing_signaled), MISTAKE(too_many_sends), MISTAKE(not_acknowledged), MISTAKE(lost_by_luck),
    MISTAKE(lost), MISTAKE(alive), MISTAKE(destroyed_twice), MISTAKE(posted_after_destroy), MISTAKE(polled_after_destroy),
    MISTAKE(no_timeout), MISTAKE(no_retry), MISTAKE(longest_rnr_timer)};

int main(void) {
    return play(MISTAKES, sizeof MISTAKES / sizeof *MISTAKES);
}
