/* Threads that wait for events: each hears of its own, whoever serves; signals and cancellation end their waits. */

#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 3, ROUNDS = 2000 };

/* What a thread waits with. */
struct side {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    char memory[64];
};

static struct ibv_context *context;
static struct ibv_pd *pd;

static void open_side(struct side *side) {
    EXPECT((side->channel = ibv_create_comp_channel(context)) != NULL);
    EXPECT((side->cq = ibv_create_cq(context, 16, NULL, side->channel, 0)) != NULL);
    EXPECT((side->mr = ibv_reg_mr(pd, side->memory, sizeof side->memory, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((side->qp = ibv_create_qp(pd, &attr)) != NULL);
    connect_with_itself(side->qp);
}

static void close_side(struct side *side) {
    EXPECT(ibv_destroy_qp(side->qp) == 0 && ibv_dereg_mr(side->mr) == 0 && ibv_destroy_cq(side->cq) == 0);
    EXPECT(ibv_destroy_comp_channel(side->channel) == 0);
}

static void arm(struct side *side) {
    EXPECT(ibv_req_notify_cq(side->cq, 0) == 0);
}

/* A message to itself. */
static void send_message(struct side *side) {
    struct ibv_sge sge = {(uintptr_t)side->memory, sizeof side->memory, side->mr->lkey};
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
    EXPECT(ibv_post_recv(side->qp, &recv, &bad_recv) == 0 && ibv_post_send(side->qp, &send, &bad_send) == 0);
}

static int take_completions(struct side *side) {
    struct ibv_wc wc[2];
    int count = ibv_poll_cq(side->cq, 2, wc);
    EXPECT(count >= 0);
    for (int i = 0; i < count; i++)
        EXPECT(wc[i].status == IBV_WC_SUCCESS);
    return count;
}

/* Waits for an event, and returns what it has done. */
static int wait_for_event(struct side *side) {
    struct ibv_cq *cq;
    void *cq_context;
    int done = ibv_get_cq_event(side->channel, &cq, &cq_context);
    if (done == 0) {
        EXPECT(cq == side->cq);
        ibv_ack_cq_events(cq, 1);
    }
    return done;
}

/* As programs wait: poll, arm, poll once more, sleep. */
static void exchange(struct side *side) {
    send_message(side);
    for (int left = 2; (left -= take_completions(side)) > 0;) {
        arm(side);
        if ((left -= take_completions(side)) > 0)
            EXPECT(wait_for_event(side) == 0);
    }
}

static void *exchange_often(void *side) {
    for (int round = 0; round < ROUNDS; round++)
        exchange(side);
    return NULL;
}

static void *poll_often(void *side) {
    for (int round = 0; round < ROUNDS; round++) {
        send_message(side);
        for (int left = 2; left > 0;)
            left -= take_completions(side);
    }
    return NULL;
}

static void *wait_once(void *side) {
    return wait_for_event(side) == 0 ? side : NULL;
}

static void pass(long milliseconds) {
    struct timespec time = {0, milliseconds * 1000000};
    while (nanosleep(&time, &time) != 0) {}
}

/* So many threads wait at the same time, beside others that poll. */
static void each_hears_of_its_own(int waiting, int polling) {
    struct side sides[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < waiting + polling; i++)
        open_side(&sides[i]);
    for (int i = 0; i < waiting + polling; i++)
        EXPECT(pthread_create(&threads[i], NULL, i < waiting ? exchange_often : poll_often, &sides[i]) == 0);
    for (int i = 0; i < waiting + polling; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
        close_side(&sides[i]);
    }
}

static volatile sig_atomic_t signals;

static void note(int number) {
    (void)number;
    signals++;
}

/* The first signal after so long, when the thread serves, or when it sleeps. */
static void a_signal_ends_a_wait(struct side *side, long milliseconds) {
    struct sigaction action = {.sa_handler = note};
    /* more than one, for the first may come before the thread waits */
    struct itimerval often = {{0, milliseconds * 1000}, {0, milliseconds * 1000}}, never = {{0, 0}, {0, 0}};
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    signals = 0;
    arm(side);
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0);
    EXPECT(wait_for_event(side) == -1 && errno == EINTR && signals > 0);
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
    send_message(side);
    EXPECT(wait_for_event(side) == 0);
}

static void *send_later(void *side) {
    pass(60);
    send_message(side);
    return NULL;
}

static void a_signal_that_restarts_does_not(struct side *side) {
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}};
    sigset_t alarm;
    pthread_t other;
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    /* which the other thread is not to get */
    EXPECT(sigemptyset(&alarm) == 0 && sigaddset(&alarm, SIGALRM) == 0 && pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
    arm(side);
    EXPECT(pthread_create(&other, NULL, send_later, side) == 0);
    EXPECT(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
    signals = 0;
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0);
    EXPECT(wait_for_event(side) == 0 && signals > 0);
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0 && pthread_join(other, NULL) == 0);
}

/* A thread that is cancelled after so long leaves everything to others. */
static void cancellation_ends_a_wait(struct side *side, long milliseconds) {
    pthread_t thread;
    void *result;
    arm(side);
    EXPECT(pthread_create(&thread, NULL, wait_once, side) == 0);
    pass(milliseconds);
    EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    send_message(side);
    EXPECT(wait_for_event(side) == 0);
}

static void drain(struct side *side) {
    for (int left = 2; left > 0;)
        left -= take_completions(side);
}

int main(void) {
    EXPECT((context = open_loopback()) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
    each_hears_of_its_own(1, 0);
    each_hears_of_its_own(THREADS, 0);
    each_hears_of_its_own(1, 1);
    each_hears_of_its_own(2, 1);

    static const long TIMES[] = {1, 40};
    struct side side;
    open_side(&side);
    for (int i = 0; i < 2; i++) {
        a_signal_ends_a_wait(&side, TIMES[i]);
        drain(&side);
        cancellation_ends_a_wait(&side, TIMES[i]);
        drain(&side);
    }
    a_signal_that_restarts_does_not(&side);
    drain(&side);
    close_side(&side);
    EXPECT(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    return 0;
}
