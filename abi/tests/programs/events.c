/* Threads that wait for events of what another thread destroys, and a descriptor that is readable only while there is an event to
   take. */

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

/* Of librdmacm, whose headers need not be there. */
struct rdma_event_channel {
    int fd;
};
int rdma_create_id(void *channel, void **id, void *context, int space);
int rdma_destroy_id(void *id);
int rdma_write_cm_event(void *id, int event, int status, uint64_t arg);
int rdma_get_cm_event(void *channel, void **event);
int rdma_ack_cm_event(void *event);
void *rdma_create_event_channel(void);
void rdma_destroy_event_channel(void *channel);

enum { RDMA_PS_TCP_NUMBER = 0x106, RDMA_CM_EVENT_USER_NUMBER = 18, THREADS = 2, BUSY_ROUNDS = 60, ASLEEP_ROUNDS = 25 };

static struct ibv_context *context;

/* What has events: how it is made and destroyed, its descriptor, and the call that waits for one. */
struct kind {
    void *(*make)(void);
    void (*destroy)(void *object);
    int (*descriptor)(void *object);
    int (*wait)(void *object);
};

static void *make_completions(void) {
    return ibv_create_comp_channel(context);
}

static void destroy_completions(void *channel) {
    EXPECT(ibv_destroy_comp_channel(channel) == 0);
}

static int completions_descriptor(void *channel) {
    return ((struct ibv_comp_channel *)channel)->fd;
}

static int wait_for_completion(void *channel) {
    struct ibv_cq *cq;
    void *cq_context;
    return ibv_get_cq_event(channel, &cq, &cq_context);
}

static void *make_context(void) {
    return open_loopback();
}

static void destroy_context(void *opened) {
    EXPECT(ibv_close_device(opened) == 0);
}

static int context_descriptor(void *opened) {
    return ((struct ibv_context *)opened)->async_fd;
}

static int wait_for_async_event(void *opened) {
    struct ibv_async_event event;
    return ibv_get_async_event(opened, &event);
}

static void *make_connections(void) {
    return rdma_create_event_channel();
}

static void destroy_connections(void *channel) {
    rdma_destroy_event_channel(channel);
}

static int connections_descriptor(void *channel) {
    return ((struct rdma_event_channel *)channel)->fd;
}

static int wait_for_connection(void *channel) {
    void *event;
    return rdma_get_cm_event(channel, &event);
}

static const struct kind COMPLETIONS = {make_completions, destroy_completions, completions_descriptor, wait_for_completion},
                         CONTEXTS = {make_context, destroy_context, context_descriptor, wait_for_async_event},
                         CONNECTIONS = {make_connections, destroy_connections, connections_descriptor, wait_for_connection};

static const struct kind *kind;
static void *object;
/* Threads that have begun to wait, and that have heard that there is nothing to wait for any more. */
static int begun, ended;

static void *wait_until_destroyed(void *unused) {
    __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
    do {
        EXPECT(kind->wait(object) == -1);
    } while (errno == EAGAIN);
    EXPECT(errno == EBADF);
    __atomic_add_fetch(&ended, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void start(pthread_t *threads) {
    begun = ended = 0;
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, wait_until_destroyed, NULL) == 0);
    while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < THREADS)
        usleep(10);
}

static void join(pthread_t *threads) {
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
}

static void do_not_wait(int descriptor) {
    EXPECT(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) == 0);
}

/* Threads that look for events all the time. */
static void destroyed_while_threads_look(void) {
    for (int round = 0; round < BUSY_ROUNDS; round++) {
        pthread_t threads[THREADS];
        EXPECT((object = kind->make()) != NULL);
        do_not_wait(kind->descriptor(object));
        start(threads);
        usleep(round * 7 % 100);
        kind->destroy(object);
        join(threads);
    }
}

static void ignore(int number) {
    (void)number;
}

/* Threads that sleep, or are about to. They go on with every signal, and then know better than to take what comes in the place of
   what they have waited for, which mostly has the same address and the same descriptor. */
static void destroyed_while_threads_sleep(void) {
    for (int round = 0; round < ASLEEP_ROUNDS; round++) {
        pthread_t threads[THREADS];
        EXPECT((object = kind->make()) != NULL);
        start(threads);
        usleep(round * 400);
        kind->destroy(object);
        void *other = kind->make(), *id, *event;
        EXPECT(other != NULL);
        if (kind == &CONNECTIONS) {
            EXPECT(rdma_create_id(other, &id, NULL, RDMA_PS_TCP_NUMBER) == 0);
            EXPECT(rdma_write_cm_event(id, RDMA_CM_EVENT_USER_NUMBER, 0, 0) == 0);
        }
        while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) < THREADS) {
            for (int i = 0; i < THREADS; i++)
                pthread_kill(threads[i], SIGUSR1);
            usleep(100);
        }
        join(threads);
        if (kind == &CONNECTIONS) {
            EXPECT(rdma_get_cm_event(other, &event) == 0 && rdma_ack_cm_event(event) == 0);
            EXPECT(rdma_destroy_id(id) == 0);
        }
        kind->destroy(other);
    }
}

static int is_readable(struct ibv_context *of) {
    struct pollfd wanted = {.fd = of->async_fd, .events = POLLIN};
    return poll(&wanted, 1, 0);
}

/* The event of a queue pair is one of its context alone, and goes with it. */
static void a_descriptor_is_readable_while_there_is_an_event(void) {
    struct ibv_context *other = open_loopback();
    EXPECT(other != NULL);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    for (int takes = 0; takes < 2; takes++) {
        struct ibv_qp *qp = ibv_create_qp(pd, &attr);
        EXPECT(qp != NULL);
        connect_with_itself(qp);
        EXPECT(!is_readable(context) && ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0);
        EXPECT(is_readable(context) && !is_readable(other));
        if (takes) {
            struct ibv_async_event event;
            EXPECT(ibv_get_async_event(context, &event) == 0);
            EXPECT(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp && !is_readable(context));
            ibv_ack_async_event(&event);
        }
        EXPECT(ibv_destroy_qp(qp) == 0 && !is_readable(context));
    }
    EXPECT(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(other) == 0);
}

int main(void) {
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0 && (context = open_loopback()) != NULL);
    a_descriptor_is_readable_while_there_is_an_event();
    const struct kind *const kinds[] = {&CONNECTIONS, &COMPLETIONS, &CONTEXTS};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kind = kinds[i];
        destroyed_while_threads_look();
        destroyed_while_threads_sleep();
    }
    EXPECT(ibv_close_device(context) == 0);
    return 0;
}
