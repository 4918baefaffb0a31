/* A program that forks while its other threads are in the middle of calls of all kinds: every child can use the library. */

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Of librdmacm, whose headers need not be there. */
int rdma_create_id(void *channel, void **id, void *context, int space);
int rdma_destroy_id(void *id);
int rdma_bind_addr(void *id, void *address);
void *rdma_create_event_channel(void);
void rdma_destroy_event_channel(void *channel);

enum { RDMA_PS_TCP_NUMBER = 0x106, FORKS = 60 };

static atomic_int ends;

/* Objects of a device. */
struct objects {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

static struct objects make(void) {
    struct objects objects = {.context = open_loopback()};
    EXPECT(objects.context != NULL && (objects.pd = ibv_alloc_pd(objects.context)) != NULL);
    EXPECT((objects.cq = ibv_create_cq(objects.context, 16, NULL, NULL, 0)) != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = objects.cq, .recv_cq = objects.cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((objects.qp = ibv_create_qp(objects.pd, &attr)) != NULL);
    connect_with_itself(objects.qp);
    return objects;
}

static void destroy(struct objects objects) {
    EXPECT(ibv_destroy_qp(objects.qp) == 0 && ibv_destroy_cq(objects.cq) == 0 && ibv_dealloc_pd(objects.pd) == 0);
    EXPECT(ibv_close_device(objects.context) == 0);
}

/* An empty message to itself. */
static void move_data(const struct objects *objects) {
    struct ibv_recv_wr recv = {0}, *bad_recv;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
    EXPECT(ibv_post_recv(objects->qp, &recv, &bad_recv) == 0 && ibv_post_send(objects->qp, &send, &bad_send) == 0);
    for (int left = 2; left > 0;) {
        struct ibv_wc wc;
        int count = ibv_poll_cq(objects->cq, 1, &wc);
        EXPECT(count == 0 || (count == 1 && wc.status == IBV_WC_SUCCESS));
        left -= count;
    }
}

static void use_an_id(void) {
    void *events = rdma_create_event_channel(), *id;
    EXPECT(events != NULL && rdma_create_id(events, &id, NULL, RDMA_PS_TCP_NUMBER) == 0);
    struct {
        unsigned short family, port;
        unsigned char address[12];
    } any = {2, 0, {0}};
    EXPECT(rdma_bind_addr(id, &any) == 0 && rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(events);
}

static void *opens(void *unused) {
    while (!ends)
        destroy(make());
    return unused;
}

static void *lists(void *unused) {
    while (!ends) {
        int count;
        ibv_free_device_list(ibv_get_device_list(&count));
        use_an_id();
    }
    return unused;
}

static void *moves(void *objects) {
    while (!ends)
        move_data(objects);
    return objects;
}

static void *destroys(void *cq) {
    EXPECT(ibv_destroy_cq(cq) == 0);
    return NULL;
}

/* A fork does not wait for a call that waits for the program: here until an event is acknowledged. */
static void fork_while_another_waits(void) {
    struct ibv_context *context = open_loopback();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0), *told;
    EXPECT(channel != NULL && pd != NULL && cq != NULL && ibv_req_notify_cq(cq, 0) == 0);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    EXPECT(qp != NULL);
    connect_with_itself(qp);
    struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
    struct ibv_recv_wr recv = {0}, *bad;
    void *told_context;
    EXPECT(ibv_post_recv(qp, &recv, &bad) == 0 && ibv_modify_qp(qp, &to_error, IBV_QP_STATE) == 0);
    EXPECT(ibv_get_cq_event(channel, &told, &told_context) == 0 && told == cq && ibv_destroy_qp(qp) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, destroys, cq) == 0);
    usleep(50000); /* it waits now, most probably */
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    int status;
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    ibv_ack_cq_events(cq, 1);
    EXPECT(pthread_join(thread, NULL) == 0 && ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
    EXPECT(ibv_close_device(context) == 0);
}

/* What it has inherited can be looked at and destroyed, and what it opens is its own. The checks report the destruction:
   with other libraries it destroys the parent's objects. */
static void child(struct objects inherited) {
    alarm(20);
    struct ibv_wc wc;
    EXPECT(ibv_poll_cq(inherited.cq, 1, &wc) == 0);
    if (getenv("ROCE_CHECK") == NULL)
        destroy(inherited);
    struct objects own = make();
    move_data(&own);
    use_an_id();
    destroy(own);
    _exit(0);
}

int main(void) {
    alarm(50);
    fork_while_another_waits();
    struct objects inherited = make(), moved = make();
    void *(*const calls[])(void *) = {opens, lists, moves};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        EXPECT(pthread_create(&threads[i], NULL, calls[i], &moved) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        EXPECT(pid >= 0);
        if (pid == 0)
            child(inherited);
        int status;
        EXPECT(waitpid(pid, &status, 0) == pid);
        if (status != 0)
            fprintf(stderr, "child %d: status %#x\n", i, status);
        EXPECT(status == 0);
        usleep(1000 + i * 37 % 1000);
    }
    ends = 1;
    for (int i = 0; i < 3; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    destroy(moved);
    destroy(inherited);
    return 0;
}
