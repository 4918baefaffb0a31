/* What the programs beside this file share: two queue pairs of one device, which speak with each other.

   Each program has one mistake, where it says WRONG. Compiled with -DREPAIRED it has none. */

#include <infiniband/verbs.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "expect.h"
#include "loopback.h"

#ifdef REPAIRED
#define WRONG 0
#else
#define WRONG 1
#endif

/* How often a program is lucky at most. */
#define ROUNDS (WRONG ? 1000 : 20)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[4096];
static union ibv_gid gid;
static struct ibv_qp *a, *b;
/* What programs change. */
static int timeout = 10, retries = 2, rnr_retry = 7, rnr_timer = 1, reads = 1;
static int rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
static uint32_t psn_there = 0x100, extra_number;

static inline struct ibv_qp *make(enum ibv_qp_type type) {
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64}};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    EXPECT(qp != NULL);
    return qp;
}

static inline int to_init(struct ibv_qp *qp, int without) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111, .qp_access_flags = rights};
    int keys = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return ibv_modify_qp(qp, &attr, (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | keys) & ~without);
}

static inline int to_rtr(struct ibv_qp *qp, uint32_t number, uint32_t psn, int is_global) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .rq_psn = psn,
        .ah_attr = {.grh = {.dgid = gid}, .is_global = is_global, .port_num = 1}, .max_dest_rd_atomic = 1, .min_rnr_timer = rnr_timer};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static inline int to_rts(struct ibv_qp *qp, uint32_t psn) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = timeout, .retry_cnt = retries, .rnr_retry = rnr_retry,
        .max_rd_atomic = reads};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                        IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline void connect_both(void) {
    a = make(IBV_QPT_RC);
    b = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num + extra_number, 0x100, 1) == 0 && to_rtr(b, a->qp_num, psn_there, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
}

static inline void datagrams(void) {
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
    for (int i = 0; i < 2; i++) {
        struct ibv_qp *qp = make(IBV_QPT_UD);
        EXPECT(to_init(qp, 0) == 0 && ibv_modify_qp(qp, &rtr, IBV_QP_STATE) == 0);
        EXPECT(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
        *(i ? &b : &a) = qp;
    }
}

static inline struct ibv_sge part(uint32_t length) {
    return (struct ibv_sge){.addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey};
}

static inline void receive(struct ibv_qp *qp, uint32_t length) {
    struct ibv_sge sge = part(length);
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(qp, &wr, &bad) == 0);
}

static inline int send_with(struct ibv_qp *qp, struct ibv_sge sge, int opcode, uint32_t rkey, int flags) {
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags}, *bad;
    if (opcode != IBV_WR_SEND) {
        wr.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
        wr.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(qp, &wr, &bad);
}

/* Completions, the errors among them counted, until there were so many. */
static inline int errors_among(int wanted) {
    struct ibv_wc wc;
    int errors = 0;
    while (wanted > 0) {
        int count = ibv_poll_cq(cq, 1, &wc);
        if (count < 0)
            return errors + 1;
        wanted -= count;
        errors += count && wc.status != IBV_WC_SUCCESS;
    }
    return errors;
}

/* A receive for what stands in the memory from there on. */
static inline void receive_at(struct ibv_qp *qp, int at, uint32_t length) {
    struct ibv_sge sge = {.addr = (uintptr_t)memory + at, .length = length, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* Sends what stands first in the memory; what is received stands from 1024 on. */
static inline void send_one(void) {
    EXPECT(send_with(a, part(512), IBV_WR_SEND, 0, 0) == 0);
}

/* Waits for the completions of a send and its receive. */
static inline void poll_both(void) {
    EXPECT(errors_among(2) == 0);
}

/* For programs that have to sleep where others would look. */
static inline void wait_a_while(void) {
    usleep(50000);
}

/* Waits until what was sent has arrived, without a look at the completions. */
static inline void wait_for_data(void) {
    while (*(volatile char *)(memory + 1024) != 1)
        usleep(1000);
    wait_a_while();
}

/* A completion queue with a channel, in the place of the other. */
static struct ibv_comp_channel *channel;

static inline void with_channel(void) {
    EXPECT((channel = ibv_create_comp_channel(context)) != NULL && ibv_destroy_cq(cq) == 0);
    EXPECT((cq = ibv_create_cq(context, 64, NULL, channel, 0)) != NULL);
}

static inline void without_channel(void) {
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    a = b = NULL;
    EXPECT((cq = ibv_create_cq(context, 1, NULL, NULL, 0)) != NULL);
}

static inline void ignore(int signal) {
    (void)signal;
}

/* Has another process end a wait that would last for ever. To be called first. */
static inline void interrupt_later(unsigned seconds) {
    struct sigaction action = {.sa_handler = ignore};
    pid_t waiting = getpid();
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    if (fork() == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
            for (sleep(seconds); kill(waiting, SIGUSR1) == 0;)
                sleep(1);
        _exit(0);
    }
}

/* Waits for an event. False if that was ended. */
static inline int event_comes(void) {
    struct ibv_cq *of;
    void *data;
    if (ibv_get_cq_event(channel, &of, &data) != 0) {
        EXPECT(errno == EINTR);
        return 0;
    }
    ibv_ack_cq_events(of, 1);
    return 1;
}

/* The objects of every program. */
static inline void set_up(void) {
    EXPECT((context = open_loopback()) != NULL && ibv_query_gid(context, 1, 0, &gid) == 0);
    EXPECT((pd = ibv_alloc_pd(context)) != NULL && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    EXPECT((mr = ibv_reg_mr(pd, memory, sizeof memory, all)) != NULL);
}

static inline void tear_down(void) {
    EXPECT((a == NULL || ibv_destroy_qp(a) == 0) && (b == NULL || ibv_destroy_qp(b) == 0));
    EXPECT(ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}
