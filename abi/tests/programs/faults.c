/* What a program sees of calls that ROCE_FAULT has fail, and how it goes on; CASE names the part. */

#include <sys/stat.h>
#include <time.h>

#include "wrong.h"

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Calls that make, change, query and destroy objects. */
static void objects(void) {
    set_up();
    EXPECT(ibv_query_gid(context, 1, 0, &gid) == -1 && errno == EPERM);
    EXPECT(ibv_query_gid(context, 1, 0, &gid) == 0);
    EXPECT(ibv_create_cq(context, 8, NULL, NULL, 0) == NULL && errno == ENOMEM);
    EXPECT(ibv_alloc_pd(context) == NULL && errno == ENOMEM);
    EXPECT(ibv_reg_mr(pd, memory, 8, 0) == NULL && errno == EAGAIN);
    struct ibv_qp *qp = make(IBV_QPT_RC);
    EXPECT(to_init(qp, 0) == EINVAL && qp->state == IBV_QPS_RESET);
    EXPECT(to_init(qp, 0) == 0 && qp->state == IBV_QPS_INIT);
    EXPECT(ibv_destroy_qp(qp) == EBUSY && ibv_destroy_qp(qp) == 0);
    tear_down();
}

/* One that fails, and no more. */
static void one(void) {
    set_up();
    EXPECT(ibv_query_gid(context, 1, 0, &gid) == -1 && errno == EPERM);
    tear_down();
}

/* Calls that move data. */
static void moving(void) {
    set_up();
    connect_both();
    struct ibv_sge sge = part(64);
    struct ibv_recv_wr second = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, first = {.wr_id = 1, .next = &second, .sg_list = &sge,
        .num_sge = 1}, *bad = NULL;
    EXPECT(ibv_post_recv(b, &first, &bad) == ENOMEM && bad == &first);
    receive(b, 64);
    struct ibv_send_wr send = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send = NULL;
    EXPECT(ibv_post_send(a, &send, &bad_send) == EINVAL && bad_send == &send);
    EXPECT(send_with(a, sge, IBV_WR_SEND, 0, 0) == 0);
    struct ibv_wc wc;
    int taken = 0, failed = 0;
    while (taken < 2) {
        int count = ibv_poll_cq(cq, 1, &wc);
        EXPECT(count >= -1);
        if (count < 0) {
            EXPECT(errno == EINTR);
            failed++;
        } else {
            taken += count;
            EXPECT(count == 0 || wc.status == IBV_WC_SUCCESS);
        }
    }
    EXPECT(failed == 1);
    tear_down();
}

/* Calls that last longer. */
static void waits(void) {
    double start = seconds();
    set_up();
    EXPECT(seconds() - start >= 0.1);
    tear_down();
}

/* Requests that are made by calls. */
static void by_calls(void) {
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    EXPECT((a = ibv_create_qp_ex(context, &attr)) != NULL && (b = make(IBV_QPT_RC)) != NULL);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0 && to_rtr(a, b->qp_num, 0x100, 1) == 0 && to_rtr(b, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a);
    receive(b, 64);
    for (int i = 0; i < 2; i++) {
        ibv_wr_start(ex);
        ex->wr_id = i;
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
        EXPECT(ibv_wr_complete(ex) == (i == 0 ? ENOMEM : 0));
    }
    EXPECT(errors_among(2) == 0);
}

/* What only the installed headers declare, where these are constants of the compiler. */
#ifndef IBV_QP_STATE
static void completions_one_by_one(void) {
    struct ibv_cq_init_attr_ex attr = {.cqe = 8};
    struct ibv_poll_cq_attr none = {0};
    struct ibv_cq_ex *made = ibv_create_cq_ex(context, &attr);
    EXPECT(made != NULL && ibv_start_poll(made, &none) == ENOENT);
    EXPECT(ibv_start_poll(made, &none) == EIO && ibv_start_poll(made, &none) == ENOENT);
    EXPECT(ibv_destroy_cq(ibv_cq_ex_to_cq(made)) == 0);
    struct ibv_alloc_dm_attr of_memory = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(context, &of_memory);
    EXPECT(dm != NULL && ibv_memcpy_to_dm(dm, 0, memory, 8) == EFAULT && ibv_memcpy_to_dm(dm, 0, memory, 8) == 0);
    EXPECT(ibv_free_dm(dm) == 0);
}
#else
static void completions_one_by_one(void) {
}
#endif

static void extended(void) {
    set_up();
    by_calls();
    completions_one_by_one();
    tear_down();
}

/* Messages from one queue pair to the other, over and over until a file STOP is there, whatever fails: each arrives once, in order
   and whole. Calls that fail are made again. */
static void load(void) {
    enum { MESSAGES = 4, LENGTH = 256 };
    set_up();
    timeout = 14;
    retries = 7;
    connect_both();
    const char *stop = getenv("STOP");
    EXPECT(stop != NULL);
    char *sent = memory, *got = memory + 2048;
    uint64_t round = 0;
    for (struct stat at; stat(stop, &at) != 0; round++) {
        for (int i = 0; i < MESSAGES * LENGTH; i++)
            sent[i] = (char)(round * 31 + i * 7);
        memset(got, 0, MESSAGES * LENGTH);
        for (int i = 0; i < MESSAGES; i++) {
            struct ibv_sge sge = {(uintptr_t)got + i * LENGTH, LENGTH, mr->lkey};
            struct ibv_recv_wr wr = {.wr_id = 100 + i, .sg_list = &sge, .num_sge = 1}, *bad;
            while (ibv_post_recv(b, &wr, &bad) != 0)
                EXPECT(bad == &wr);
        }
        for (int i = 0; i < MESSAGES; i++) {
            struct ibv_sge sge = {(uintptr_t)sent + i * LENGTH, LENGTH, mr->lkey};
            struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
            while (ibv_post_send(a, &wr, &bad) != 0)
                EXPECT(bad == &wr);
        }
        for (uint64_t next_sent = 0, next_got = 100; next_sent < MESSAGES || next_got < 100 + MESSAGES;) {
            struct ibv_wc wc;
            if (ibv_poll_cq(cq, 1, &wc) <= 0)
                continue;
            EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (wc.qp_num == a->qp_num ? next_sent : next_got));
            *(wc.qp_num == a->qp_num ? &next_sent : &next_got) += 1;
        }
        EXPECT(memcmp(sent, got, MESSAGES * LENGTH) == 0);
    }
    fprintf(stderr, "rounds %lu\n", (unsigned long)round);
    tear_down();
}

/* Waits for an event. */
static int event(void) {
    struct ibv_async_event taken;
    EXPECT(ibv_get_async_event(context, &taken) == 0);
    int type = taken.event_type;
    ibv_ack_async_event(&taken);
    return type;
}

/* A request that fails, and events at their times. */
static void incidents(void) {
    set_up();
    timeout = 14;
    retries = 7;
    connect_both();
    EXPECT(event() == IBV_EVENT_GID_CHANGE);
    for (int i = 1; i <= 4; i++) {
        struct ibv_recv_wr wr = {.wr_id = i}, *bad;
        EXPECT(ibv_post_recv(b, &wr, &bad) == 0);
    }
    for (int i = 1; i <= 4; i++) {
        struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_SEND}, *bad;
        EXPECT(ibv_post_send(a, &wr, &bad) == 0);
    }
    struct ibv_wc wc;
    for (int sent = 0; sent < 4;) {
        if (ibv_poll_cq(cq, 1, &wc) != 1 || wc.qp_num != a->qp_num)
            continue;
        sent++;
        EXPECT(wc.status == (sent < 3 ? IBV_WC_SUCCESS : sent == 3 ? IBV_WC_REM_OP_ERR : IBV_WC_WR_FLUSH_ERR));
    }
    EXPECT(event() == IBV_EVENT_PORT_ERR && event() == IBV_EVENT_PORT_ACTIVE);
    EXPECT(event() == IBV_EVENT_QP_FATAL); /* of the one that is not in ERR */
    EXPECT(event() == IBV_EVENT_DEVICE_FATAL);
    tear_down();
}

int main(void) {
    const char *name = getenv("CASE");
    EXPECT(name != NULL);
    if (strcmp(name, "objects") == 0)
        objects();
    else if (strcmp(name, "one") == 0)
        one();
    else if (strcmp(name, "moving") == 0)
        moving();
    else if (strcmp(name, "load") == 0)
        load();
    else if (strcmp(name, "incidents") == 0)
        incidents();
    else if (strcmp(name, "wait") == 0)
        waits();
    else
        extended();
    return 0;
}
