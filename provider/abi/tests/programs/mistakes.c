/* One mistake each, which MISTAKE names: the library explains it. With REPAIRED the same program without the mistake, of which the
   library says nothing. Two queue pairs of one device, which speak with each other. */

#include <infiniband/verbs.h>
#include <stdint.h>

#include "expect.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[4096];
static union ibv_gid gid;
static struct ibv_qp *a, *b;
static int wrong;
/* What the mistakes change. */
static int rooms = 64, timeout = 10, rnr_retry = 7, rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
static uint32_t psn_there = 0x100, extra_number;

static struct ibv_qp *make(enum ibv_qp_type type) {
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64}};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    EXPECT(qp != NULL);
    return qp;
}

static int to_init(struct ibv_qp *qp, int without) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111, .qp_access_flags = rights};
    int keys = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return ibv_modify_qp(qp, &attr, (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | keys) & ~without);
}

static int to_rtr(struct ibv_qp *qp, uint32_t number, uint32_t psn, int is_global) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .rq_psn = psn,
        .ah_attr = {.grh = {.dgid = gid}, .is_global = is_global, .port_num = 1}, .max_dest_rd_atomic = 1, .min_rnr_timer = 1};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp *qp, uint32_t psn) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = timeout, .retry_cnt = 2, .rnr_retry = rnr_retry,
        .max_rd_atomic = 1};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                        IBV_QP_MAX_QP_RD_ATOMIC);
}

static void connect_both(void) {
    a = make(IBV_QPT_RC);
    b = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, b->qp_num + extra_number, 0x100, 1) == 0 && to_rtr(b, a->qp_num, psn_there, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
}

static void datagrams(void) {
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
    for (int i = 0; i < 2; i++) {
        struct ibv_qp *qp = make(IBV_QPT_UD);
        EXPECT(to_init(qp, 0) == 0 && ibv_modify_qp(qp, &rtr, IBV_QP_STATE) == 0);
        EXPECT(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
        *(i ? &b : &a) = qp;
    }
}

static struct ibv_sge part(uint32_t length) {
    return (struct ibv_sge){.addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey};
}

static void receive(struct ibv_qp *qp, uint32_t length) {
    struct ibv_sge sge = part(length);
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(qp, &wr, &bad) == 0);
}

static int send_with(struct ibv_qp *qp, struct ibv_sge sge, int opcode, uint32_t rkey, int flags) {
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags}, *bad;
    if (opcode != IBV_WR_SEND) {
        wr.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
        wr.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(qp, &wr, &bad);
}

/* Completions, the errors among them counted, until there were so many. */
static int errors_among(int wanted) {
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

/* Mistakes. */

static void no_gid(void) {
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_rtr(a, a->qp_num, 0x100, !wrong) == (wrong ? EINVAL : 0));
}

static void wrong_order(void) {
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0);
    if (!wrong)
        EXPECT(to_rtr(a, a->qp_num, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == (wrong ? EINVAL : 0));
}

static void missing_attribute(void) {
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, wrong ? IBV_QP_PKEY_INDEX : 0) == (wrong ? EINVAL : 0));
}

static void too_many_sges(void) {
    connect_both();
    receive(b, 64);
    struct ibv_sge list[3] = {part(8), part(8), part(8)};
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = list, .num_sge = wrong ? 3 : 2, .opcode = IBV_WR_SEND}, *bad;
    EXPECT(ibv_post_send(a, &wr, &bad) == (wrong ? EINVAL : 0));
}

static void inline_too_long(void) {
    connect_both();
    receive(b, 128);
    EXPECT(send_with(a, part(wrong ? 65 : 64), IBV_WR_SEND, 0, IBV_SEND_INLINE) == (wrong ? EINVAL : 0));
}

static void bad_lkey(void) {
    connect_both();
    receive(b, 64);
    struct ibv_sge sge = part(8);
    sge.lkey ^= wrong;
    EXPECT(send_with(a, sge, IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - wrong) > 0) == wrong);
}

static void bad_rkey(void) {
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey ^ wrong, 0) == 0 && errors_among(1) == wrong);
}

static void missing_right(void) {
    if (wrong)
        rights = IBV_ACCESS_REMOTE_READ;
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0 && errors_among(1) == wrong);
}

static void no_receive(void) {
    rnr_retry = 1;
    connect_both();
    if (!wrong)
        receive(b, 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - wrong) > 0) == wrong);
}

static void wrong_number(void) {
    extra_number = wrong;
    connect_both();
    receive(b, 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - wrong) > 0) == wrong);
}

static void wrong_psn(void) {
    psn_there += 0x1000 * wrong;
    connect_both();
    receive(b, 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2 - wrong) > 0) == wrong);
}

static void wrong_qkey(void) {
    datagrams();
    receive(b, 64);
    struct ibv_ah_attr way = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    struct ibv_sge sge = part(8);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = b->qp_num;
    wr.wr.ud.remote_qkey = 0x11111111 + wrong;
    EXPECT(ah && ibv_post_send(a, &wr, &bad) == 0 && errors_among(2 - wrong) == 0);
    for (int i = 0; i < 10000 && wrong; i++) /* it arrives meanwhile */
        EXPECT(ibv_poll_cq(cq, 1, &(struct ibv_wc){0}) == 0);
    EXPECT(ibv_destroy_ah(ah) == 0);
}

static void cq_overrun(void) {
    rooms = wrong ? 2 : 64;
    EXPECT(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(context, rooms, NULL, NULL, 0)) != NULL);
    connect_both();
    for (int i = 0; i < 4; i++)
        receive(b, 64);
    for (int i = 0; i < 4; i++)
        EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0);
    EXPECT((errors_among(8) > 0) == wrong);
}

static void short_receive(void) {
    connect_both();
    receive(b, wrong ? 4 : 64);
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == 0 && (errors_among(2) > 0) == wrong);
}

static void post_in_reset(void) {
    a = make(IBV_QPT_RC);
    if (!wrong) {
        EXPECT(ibv_destroy_qp(a) == 0);
        connect_both();
        receive(b, 64);
    }
    EXPECT(send_with(a, part(8), IBV_WR_SEND, 0, 0) == (wrong ? EINVAL : 0));
}

static void queue_full(void) {
    connect_both();
    for (int i = 0; i < 8; i++)
        receive(b, 64);
    struct ibv_sge sge = part(64);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if (wrong)
        EXPECT(ibv_post_recv(b, &wr, &bad) == ENOMEM);
}

static void remote_without_local(void) {
    struct ibv_mr *other = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE | (wrong ? 0 : IBV_ACCESS_LOCAL_WRITE));
    EXPECT((other == NULL) == wrong && (wrong || ibv_dereg_mr(other) == 0));
}

static void domain_in_use(void) {
    EXPECT(ibv_dereg_mr(mr) == 0);
    a = make(IBV_QPT_RC);
    if (!wrong) {
        EXPECT(ibv_destroy_qp(a) == 0);
        a = NULL;
    }
    EXPECT(ibv_destroy_cq(cq) == (wrong ? EBUSY : 0));
    exit(0);
}

static const struct {
    const char *name;
    void (*run)(void);
} MISTAKES[] = {{"no_gid", no_gid}, {"wrong_order", wrong_order}, {"missing_attribute", missing_attribute}, {"too_many_sges", too_many_sges},
    {"inline_too_long", inline_too_long}, {"bad_lkey", bad_lkey}, {"bad_rkey", bad_rkey}, {"missing_right", missing_right},
    {"no_receive", no_receive}, {"wrong_number", wrong_number}, {"wrong_psn", wrong_psn}, {"wrong_qkey", wrong_qkey},
    {"cq_overrun", cq_overrun}, {"short_receive", short_receive}, {"post_in_reset", post_in_reset}, {"queue_full", queue_full},
    {"remote_without_local", remote_without_local}, {"domain_in_use", domain_in_use}};

int main(void) {
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(ibv_get_device_name(devices[i]), "roce_lo") == 0)
            context = ibv_open_device(devices[i]);
    ibv_free_device_list(devices);
    EXPECT(context != NULL && ibv_query_gid(context, 1, 0, &gid) == 0);
    EXPECT((pd = ibv_alloc_pd(context)) != NULL && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    EXPECT((mr = ibv_reg_mr(pd, memory, sizeof memory, all)) != NULL);
    wrong = getenv("REPAIRED") == NULL;
    const char *mistake = getenv("MISTAKE");
    for (size_t i = 0; mistake && i < sizeof MISTAKES / sizeof *MISTAKES; i++)
        if (strcmp(MISTAKES[i].name, mistake) == 0) {
            MISTAKES[i].run();
            EXPECT((a == NULL || ibv_destroy_qp(a) == 0) && (b == NULL || ibv_destroy_qp(b) == 0));
            EXPECT(ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
            return 0;
        }
    EXPECT(!"a mistake of this name");
    return 1;
}
