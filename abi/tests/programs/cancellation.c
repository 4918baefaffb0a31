/* Threads that are cancelled in calls: those that do not wait return, those that wait end, and the library goes on in either case. */

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Of librdmacm, whose headers need not be there. */
int rdma_create_id(void *channel, void **id, void *context, int space);
int rdma_destroy_id(void *id);
int rdma_bind_addr(void *id, void *address);
int rdma_listen(void *id, int backlog);
int rdma_get_cm_event(void *channel, void **event);
void *rdma_create_event_channel(void);
void rdma_destroy_event_channel(void *channel);
void **rdma_get_devices(int *count);
void rdma_free_devices(void **devices);
int rdma_getaddrinfo(const char *node, const char *service, void *hints, void **found);
void rdma_freeaddrinfo(void *found);

enum { RDMA_PS_TCP_NUMBER = 0x106, ROUNDS = 200 };

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static struct ibv_mw *mw;
static struct ibv_qp *qp;
static void *events, *id;
static char memory[4096];

static void open_device(void) {
    EXPECT((context = open_loopback()) != NULL);
}

static void make_objects(void) {
    EXPECT((channel = ibv_create_comp_channel(context)) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
    EXPECT((cq = ibv_create_cq(context, 64, NULL, channel, 0)) != NULL && ibv_resize_cq(cq, 128) == 0);
    EXPECT((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    EXPECT((srq = ibv_create_srq(pd, &srq_attr)) != NULL && (mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)) != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((qp = ibv_create_qp(pd, &attr)) != NULL);
    connect_with_itself(qp);
    union ibv_gid gid;
    EXPECT(ibv_query_gid(context, 1, 0, &gid) == 0);
    struct ibv_ah_attr path = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    EXPECT((ah = ibv_create_ah(pd, &path)) != NULL);
}

/* A message to itself, with its completions. */
static void move_data(void) {
    struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
    EXPECT(ibv_req_notify_cq(cq, 0) == 0 && ibv_post_recv(qp, &recv, &bad_recv) == 0 && ibv_post_send(qp, &send, &bad_send) == 0);
    for (int left = 2; left > 0;) {
        struct ibv_wc wc;
        int count = ibv_poll_cq(cq, 1, &wc);
        EXPECT(count == 0 || (count == 1 && wc.status == IBV_WC_SUCCESS));
        left -= count;
    }
}

static void use_ids(void) {
    EXPECT((events = rdma_create_event_channel()) != NULL && rdma_create_id(events, &id, NULL, RDMA_PS_TCP_NUMBER) == 0);
    struct {
        unsigned short family, port;
        unsigned char address[12];
    } local = {2, 0, {127, 0, 0, 1}};
    if (rdma_bind_addr(id, &local) == 0)
        EXPECT(rdma_listen(id, 1) == 0);
    else
        EXPECT(errno == EADDRINUSE); /* by another process, which does not share it in time */
    int count;
    void **devices = rdma_get_devices(&count), *found;
    EXPECT(devices != NULL && count > 0);
    rdma_free_devices(devices);
    EXPECT(rdma_getaddrinfo("localhost", NULL, NULL, &found) == 0);
    rdma_freeaddrinfo(found);
    EXPECT(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(events);
}

static void destroy_objects(void) {
    EXPECT(ibv_destroy_ah(ah) == 0 && ibv_dealloc_mw(mw) == 0 && ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0);
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
    EXPECT(ibv_destroy_comp_channel(channel) == 0);
}

/* Takes and acknowledges what events there are; their number. */
static int take_events(void) {
    int taken = 0, flags = fcntl(channel->fd, F_GETFL);
    EXPECT(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
    struct ibv_cq *told;
    void *told_context;
    for (; ibv_get_cq_event(channel, &told, &told_context) == 0; taken++)
        ibv_ack_cq_events(told, 1);
    EXPECT(errno == EAGAIN && fcntl(channel->fd, F_SETFL, flags) == 0);
    return taken;
}

/* An event comes a moment after its completion. */
static void await_event(void) {
    struct pollfd wanted = {.fd = channel->fd, .events = POLLIN};
    EXPECT(poll(&wanted, 1, 10000) == 1);
}

static void close_device(void) {
    EXPECT(ibv_close_device(context) == 0);
}

struct step {
    void (*calls)(void);
    int done;
};

/* A thread that is cancelled already ends at the first place where it can. */
static void *cancelled(void *argument) {
    struct step *step = argument;
    pthread_cancel(pthread_self());
    step->calls();
    step->done = 1;
    pthread_testcancel();
    return NULL;
}

static void run_cancelled(const char *name, void (*calls)(void)) {
    struct step step = {calls, 0};
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, cancelled, &step) == 0 && pthread_join(thread, &result) == 0);
    if (!step.done)
        fprintf(stderr, "%s did not return\n", name);
    EXPECT(step.done && result == PTHREAD_CANCELED);
}

/* A child has what it opens itself. */
static void fork_and_use(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        alarm(20);
        open_device();
        make_objects();
        move_data();
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static volatile int started;

static void *move_until_cancelled(void *unused) {
    started = 1;
    for (;; pthread_testcancel())
        move_data();
    return unused;
}

static void *wait_for_completion(void *unused) {
    (void)unused;
    struct ibv_cq *told;
    void *told_context;
    ibv_get_cq_event(channel, &told, &told_context);
    return NULL;
}

static void *wait_for_async_event(void *unused) {
    (void)unused;
    struct ibv_async_event event;
    ibv_get_async_event(context, &event);
    return NULL;
}

static void *wait_for_cm_event(void *unused) {
    (void)unused;
    void *event;
    rdma_get_cm_event(events, &event);
    return NULL;
}

static void *wait_with_an_event_there(void *unused) {
    pthread_cancel(pthread_self());
    return wait_for_completion(unused);
}

/* A thread that waits ends when it is cancelled. */
static void end_while_waiting(void *(*waits)(void *)) {
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, waits, NULL) == 0);
    usleep(20000);
    EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

int main(void) {
    alarm(50);
    void (*const steps[])(void) = {open_device, make_objects, move_data, use_ids};
    const char *const names[] = {"opening", "making objects", "moving data", "ids"};
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
        run_cancelled(names[i], steps[i]);
    fork_and_use();

    /* under load, at any place */
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *result;
        started = 0;
        EXPECT(pthread_create(&thread, NULL, move_until_cancelled, NULL) == 0);
        while (!started)
            usleep(10);
        usleep(round * 7 % 300);
        EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    move_data();
    fork_and_use();

    /* an event that is there is not lost when a thread ends in its place */
    await_event();
    take_events();
    move_data();
    await_event();
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, wait_with_an_event_there, NULL) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    EXPECT(take_events() > 0);
    end_while_waiting(wait_for_completion);
    EXPECT((events = rdma_create_event_channel()) != NULL);
    end_while_waiting(wait_for_async_event);
    end_while_waiting(wait_for_cm_event);
    rdma_destroy_event_channel(events);
    move_data();
    await_event();
    take_events();
    run_cancelled("destroying objects", destroy_objects);
    run_cancelled("closing", close_device);
    fork_and_use();
    return 0;
}
