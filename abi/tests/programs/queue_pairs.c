/* Results of calls at the edges: numbers of errors, the request of a list that failed, batches, objects that keep others alive. */

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "loopback.h"

#define FAILS(call, number) (errno = 0, (call) == NULL && errno == (number))

enum { ROOM = 4, INLINE = 64 }; /* more inline than is given without being asked for */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[4096];
static union ibv_gid gid;

static const struct ibv_qp_cap CAP = {
    .max_send_wr = ROOM, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = INLINE};

static struct ibv_qp *make(enum ibv_qp_type type, struct ibv_srq *srq, uint64_t operations) {
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .cap = CAP, .qp_type = type, .sq_sig_all = 1, .pd = pd};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | (operations ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0);
    attr.send_ops_flags = operations;
    return ibv_create_qp_ex(context, &attr);
}

static struct ibv_ah_attr way(void) {
    return (struct ibv_ah_attr){.grh = {.dgid = gid, .hop_limit = 3, .traffic_class = 4}, .is_global = 1, .port_num = 1};
}

static void to_init(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int keys = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | keys) == 0);
    EXPECT(qp->state == IBV_QPS_INIT);
}

/* A reliable connection with itself. */
static void connect_rc(struct ibv_qp *qp) {
    to_init(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .ah_attr = way(),
        .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                        IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    EXPECT(qp->state == IBV_QPS_RTS);
}

/* The next completion. */
static struct ibv_wc next(void) {
    struct ibv_wc wc;
    for (;;) {
        int count = ibv_poll_cq(cq, 1, &wc);
        EXPECT(count >= 0);
        if (count)
            return wc;
    }
}

static void creating(void) {
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = CAP, .qp_type = IBV_QPT_RC};
    attr.cap.max_send_sge = 1000;
    EXPECT(FAILS(ibv_create_qp(pd, &attr), EINVAL));
    attr.cap = CAP;
    attr.send_cq = NULL;
    EXPECT(FAILS(ibv_create_qp(pd, &attr), EINVAL));
    EXPECT(FAILS(make(IBV_QPT_RAW_PACKET, NULL, 0), EOPNOTSUPP));
    EXPECT(FAILS(make(0xFF /* IBV_QPT_DRIVER */, NULL, 0), EOPNOTSUPP));
    EXPECT(FAILS(make(5, NULL, 0), EINVAL));
    EXPECT(FAILS(make(IBV_QPT_UD, NULL, IBV_QP_EX_WITH_RDMA_WRITE), EOPNOTSUPP));
    EXPECT(FAILS(make(IBV_QPT_RC, NULL, IBV_QP_EX_WITH_TSO), EOPNOTSUPP));

    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    EXPECT(srq != NULL);
    struct ibv_qp *qp = make(IBV_QPT_RC, srq, 0);
    EXPECT(qp != NULL && qp->srq == srq && qp->state == IBV_QPS_RESET && ibv_qp_to_qp_ex(qp) == NULL);
    EXPECT(ibv_destroy_srq(srq) == EBUSY && ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    struct ibv_qp_attr found;
    struct ibv_qp_init_attr init;
    EXPECT(ibv_query_qp(qp, &found, IBV_QP_STATE, &init) == 0);
    EXPECT(found.qp_state == IBV_QPS_RESET && init.srq == srq && init.sq_sig_all == 1 && init.cap.max_send_wr == ROOM);
    struct ibv_srq_attr limit = {.srq_limit = 9};
    EXPECT(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == EINVAL);
    limit.srq_limit = 3;
    EXPECT(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0 && ibv_modify_srq(srq, &limit, 4) == EINVAL);
    EXPECT(ibv_query_srq(srq, &limit) == 0 && limit.max_wr >= 8 && limit.srq_limit == 3);
    uint32_t number;
    EXPECT(ibv_get_srq_num(srq, &number) == EINVAL);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0);
}

static void modifying(void) {
    struct ibv_qp *qp = make(IBV_QPT_RC, NULL, 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 2};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    EXPECT(ibv_modify_qp(qp, &attr, mask) == EINVAL && errno == EINVAL);
    attr.port_num = 1;
    EXPECT(ibv_modify_qp(qp, &attr, mask & ~IBV_QP_PORT) == EINVAL && ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY) == EINVAL);
    EXPECT(ibv_modify_qp(qp, &attr, mask | IBV_QP_RATE_LIMIT) == EOPNOTSUPP && qp->state == IBV_QPS_RESET);
    connect_rc(qp);
    struct ibv_qp_attr found;
    struct ibv_qp_init_attr init;
    EXPECT(ibv_query_qp(qp, &found, IBV_QP_AV, &init) == 0);
    EXPECT(found.dest_qp_num == qp->qp_num && found.ah_attr.grh.hop_limit == 3 && found.ah_attr.grh.traffic_class == 4);
    EXPECT(memcmp(&found.ah_attr.grh.dgid, &gid, sizeof gid) == 0 && found.path_mtu == IBV_MTU_1024 && found.port_num == 1);
    attr.path_mig_state = IBV_MIG_REARM;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_PATH_MIG_STATE) == EOPNOTSUPP);
    struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1};
    EXPECT(ibv_modify_qp_rate_limit(qp, &rate) == EOPNOTSUPP);
    attr.qp_state = IBV_QPS_ERR;
    struct ibv_recv_wr recv[2] = {{.wr_id = 1, .next = &recv[1]}, {.wr_id = 2}}, *bad;
    EXPECT(ibv_post_recv(qp, recv, &bad) == 0);
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_ERR);
    struct ibv_wc wc = next();
    EXPECT(wc.wr_id == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
    /* completions that are not polled go with the queue pair */
    attr.qp_state = IBV_QPS_RESET;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0 && ibv_poll_cq(cq, 1, &wc) == 0);
    connect_rc(qp);
    EXPECT(ibv_post_recv(qp, recv, &bad) == 0);
    attr.qp_state = IBV_QPS_ERR;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0 && next().wr_id == 1);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_poll_cq(cq, 1, &wc) == 0);
}

static void lists(void) {
    struct ibv_qp *qp = make(IBV_QPT_RC, NULL, 0);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey};
    struct ibv_recv_wr twice[2] = {{.wr_id = 1, .sg_list = &sge, .num_sge = 1}, {.wr_id = 2, .num_sge = 2}}, *bad_recv = NULL;
    struct ibv_sge two[2] = {sge, sge};
    twice[0].next = &twice[1];
    twice[1].sg_list = two;
    struct ibv_send_wr wr[3] = {{.wr_id = 10, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}}, *bad = NULL;
    EXPECT(ibv_post_send(qp, wr, &bad) == EINVAL && bad == wr);
    connect_rc(qp);
    EXPECT(ibv_post_recv(qp, twice, &bad_recv) == EINVAL && bad_recv == &twice[1]);

    /* the second is too long to be inline; the first is posted, the third is not */
    struct ibv_sge longer = {.addr = (uintptr_t)memory, .length = INLINE + 1};
    wr[1] = (struct ibv_send_wr){.wr_id = 11, .sg_list = &longer, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
    wr[2] = wr[0];
    wr[0].next = &wr[1];
    wr[1].next = &wr[2];
    EXPECT(ibv_post_send(qp, wr, &bad) == EINVAL && bad == &wr[1]);
    uint64_t sum = next().wr_id + next().wr_id;
    EXPECT(sum == 11);
    static const int wrong[] = {IBV_WR_TSO, 99};
    for (int i = 0; i < 2; i++) {
        struct ibv_send_wr other = {.opcode = wrong[i]};
        EXPECT(ibv_post_send(qp, &other, &bad) == (i ? EINVAL : EOPNOTSUPP) && bad == &other);
    }
    struct ibv_send_wr checksum = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_IP_CSUM};
    EXPECT(ibv_post_send(qp, &checksum, &bad) == EINVAL);
    struct ibv_send_wr negative = {.opcode = IBV_WR_SEND, .num_sge = -1};
    EXPECT(ibv_post_send(qp, &negative, &bad) == EINVAL);

    /* nothing is posted to receive, so the queue fills */
    struct ibv_send_wr many[ROOM + 1];
    for (int i = 0; i <= ROOM; i++)
        many[i] = (struct ibv_send_wr){.wr_id = i, .next = i < ROOM ? &many[i + 1] : NULL, .opcode = IBV_WR_SEND};
    EXPECT(ibv_post_send(qp, many, &bad) == ENOMEM && bad == &many[ROOM]);
    EXPECT(ibv_destroy_qp(qp) == 0);
}

/* Room for a structure one byte behind where it would be aligned, as in packed structures. */
#define ODD(type, count) ((type *)(void *)((char *)calloc((count) + 1, sizeof(type)) + 1))

/* Programs have requests, their lists and completions at any address; iSER's initiator in libiscsi 1.19 does. */
static void unaligned(void) {
    struct ibv_qp *qp = make(IBV_QPT_RC, NULL, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
    connect_rc(qp);
    struct ibv_sge *to = ODD(struct ibv_sge, 1), *from = ODD(struct ibv_sge, 2);
    memcpy(to, &(struct ibv_sge){(uintptr_t)memory + 64, 16, mr->lkey}, sizeof *to);
    memcpy(from, (struct ibv_sge[2]){{(uintptr_t)memory, 3, mr->lkey}, {(uintptr_t)memory + 3, 6, mr->lkey}}, 2 * sizeof *from);
    struct ibv_recv_wr *recv = ODD(struct ibv_recv_wr, 1), **bad_recv = ODD(struct ibv_recv_wr *, 1);
    memcpy(recv, &(struct ibv_recv_wr){.wr_id = 1, .sg_list = to, .num_sge = 1}, sizeof *recv);
    EXPECT(ibv_post_recv(qp, recv, bad_recv) == 0);
    struct ibv_send_wr *wr = ODD(struct ibv_send_wr, 2), **bad = ODD(struct ibv_send_wr *, 1), *stopped_at;
    struct ibv_send_wr wrong = {.opcode = 99};
    memcpy(&wr[1], &wrong, sizeof wrong);
    struct ibv_send_wr good = {.wr_id = 2, .next = &wr[1], .sg_list = from, .num_sge = 2, .opcode = IBV_WR_SEND};
    memcpy(wr, &good, sizeof good);
    strcpy(memory, "unaligned");
    EXPECT(ibv_post_send(qp, wr, bad) == EINVAL);
    memcpy(&stopped_at, bad, sizeof stopped_at);
    EXPECT(stopped_at == &wr[1]);
    struct ibv_wc *place = ODD(struct ibv_wc, 1), wc;
    for (int i = 0; i < 2; i++) {
        while (ibv_poll_cq(cq, 1, place) == 0)
            ;
        memcpy(&wc, place, sizeof wc);
        EXPECT(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 2 || (wc.wr_id == 1 && wc.byte_len == 9)));
    }
    EXPECT(memcmp(memory + 64, "unaligned", 9) == 0);

    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_data_buf *pieces = ODD(struct ibv_data_buf, 2);
    memcpy(pieces, (struct ibv_data_buf[2]){{memory, 2}, {memory + 2, 8}}, 2 * sizeof *pieces);
    EXPECT(ibv_post_recv(qp, recv, bad_recv) == 0);
    ibv_wr_start(ex);
    ex->wr_id = 3;
    ibv_wr_rdma_write_imm(ex, mr->rkey, (uintptr_t)memory + 128, 4);
    ibv_wr_set_inline_data_list(ex, 2, pieces);
    EXPECT(ibv_wr_complete(ex) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(next().status == IBV_WC_SUCCESS);
    EXPECT(strcmp(memory + 128, "unaligned") == 0);

    /* a failed one, which is written in another way for programs that are checked */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    EXPECT(ibv_post_recv(qp, recv, bad_recv) == 0 && ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    while (ibv_poll_cq(cq, 1, place) == 0)
        ;
    memcpy(&wc, place, sizeof wc);
    EXPECT(wc.wr_id == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
    EXPECT(ibv_destroy_qp(qp) == 0);
    void *rooms[] = {to, from, recv, bad_recv, wr, bad, place, pieces};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        free((char *)rooms[i] - 1);
}

static void batches(void) {
    struct ibv_qp *qp = make(IBV_QPT_RC, NULL, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    EXPECT(ex != NULL && ex->wr_send && ex->wr_rdma_write_imm && !ex->wr_rdma_read && !ex->wr_set_ud_addr);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    EXPECT(ibv_wr_complete(ex) == EINVAL); /* RESET */
    connect_rc(qp);
    struct ibv_recv_wr recv = {.wr_id = 100}, *bad;
    EXPECT(ibv_post_recv(qp, &recv, &bad) == 0);

    ibv_wr_start(ex);
    ex->wr_id = 1;
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    ibv_wr_start(ex);
    EXPECT(ibv_wr_complete(ex) == 0); /* nothing is left of it */
    /* the second is wrong, so none is posted; what comes after it is not looked at */
    ibv_wr_start(ex);
    ex->wr_id = 2;
    ibv_wr_send(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, memory, INLINE + 1);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
    ibv_wr_send(ex);
    EXPECT(ibv_wr_complete(ex) == EINVAL);
    ibv_wr_start(ex);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
    EXPECT(ibv_wr_complete(ex) == EINVAL); /* of no request */
    ibv_wr_start(ex);
    for (int i = 0; i <= ROOM; i++)
        ibv_wr_send(ex);
    EXPECT(ibv_wr_complete(ex) == ENOMEM);

    strcpy(memory, "inline");
    ibv_wr_start(ex);
    ex->wr_id = 3;
    ibv_wr_rdma_write_imm(ex, mr->rkey, (uintptr_t)memory + 64, 0x01020304);
    struct ibv_data_buf pieces[2] = {{memory, 2}, {memory + 2, 5}};
    ibv_wr_set_inline_data_list(ex, 2, pieces);
    memory[0] = 'X';
    EXPECT(ibv_wr_complete(ex) == 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = next();
        EXPECT(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 3 || wc.wr_id == 100));
        EXPECT(wc.wr_id == 3 || (wc.imm_data == 0x01020304 && wc.byte_len == 7));
    }
    EXPECT(strcmp(memory + 64, "inline") == 0);
    EXPECT(ibv_destroy_qp(qp) == 0);
}

static void datagrams(void) {
    struct ibv_ah_attr attr = way();
    attr.port_num = 2;
    EXPECT(FAILS(ibv_create_ah(pd, &attr), EINVAL));
    attr = way();
    attr.is_global = 0;
    EXPECT(FAILS(ibv_create_ah(pd, &attr), EINVAL));
    attr = way();
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    EXPECT(ah != NULL && ah->pd == pd);

    struct ibv_qp *qp = make(IBV_QPT_UD, NULL, IBV_QP_EX_WITH_SEND);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    to_init(qp);
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_RTR};
    EXPECT(ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
    to.qp_state = IBV_QPS_RTS;
    EXPECT(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 128, .lkey = mr->lkey};
    struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(qp, &recv, &bad) == 0);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    EXPECT(ibv_wr_complete(ex) == EINVAL); /* without a destination */
    struct ibv_send_wr no_destination = {.opcode = IBV_WR_SEND}, *bad_send;
    EXPECT(ibv_post_send(qp, &no_destination, &bad_send) == EINVAL);
    ibv_wr_start(ex);
    ex->wr_id = 2;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah, qp->qp_num, 0x11);
    EXPECT(ibv_wr_complete(ex) == 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = next();
        EXPECT(wc.status == IBV_WC_SUCCESS);
        if (wc.wr_id == 2)
            continue;
        struct ibv_ah_attr back;
        EXPECT(ibv_init_ah_from_wc(context, 2, &wc, (struct ibv_grh *)memory, &back) == -1);
        EXPECT(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)memory, &back) == 0);
        EXPECT(back.is_global && back.port_num == 1 && back.grh.hop_limit == 0xFF && back.grh.traffic_class == 4);
        EXPECT(memcmp(&back.grh.dgid, &gid, sizeof gid) == 0);
        struct ibv_ah *answer = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)memory, 1);
        EXPECT(answer != NULL && ibv_destroy_ah(answer) == 0);
    }

    union ibv_gid group = {.raw = {[10] = 0xFF, 0xFF, 239, 1, 2, 3}};
    EXPECT(ibv_detach_mcast(qp, &group, 0) == EINVAL && ibv_attach_mcast(qp, &gid, 0) == EINVAL);
    EXPECT(ibv_attach_mcast(qp, &group, 0) == 0 && ibv_attach_mcast(qp, &group, 0) == 0 && ibv_destroy_qp(qp) == EBUSY);
    EXPECT(ibv_detach_mcast(qp, &group, 0) == 0 && ibv_destroy_qp(qp) == 0 && ibv_destroy_ah(ah) == 0);
}

static struct ibv_xrcd *domain(int fd, int flags) {
    struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};
    return ibv_open_xrcd(context, &attr);
}

static struct ibv_qp *open_target(struct ibv_xrcd *xrcd, uint32_t number) {
    struct ibv_qp_open_attr attr = {.qp_num = number, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV, .qp_context = memory,
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT};
    return ibv_open_qp(context, &attr);
}

static void xrc(void) {
    char name[] = "/tmp/roce-xrc-XXXXXX";
    int fd = mkstemp(name), again = open(name, O_RDONLY);
    EXPECT(fd != -1 && again != -1 && unlink(name) == 0);
    EXPECT(FAILS(domain(fd, 0), EAGAIN) && FAILS(domain(1000, O_CREAT), EBADF));
    struct ibv_xrcd *first = domain(fd, O_CREAT), *second = domain(again, 0), *other = domain(-1, O_CREAT);
    EXPECT(first && second && other && FAILS(domain(again, O_CREAT | O_EXCL), EINVAL));

    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = first};
    struct ibv_qp *target = ibv_create_qp_ex(context, &attr);
    EXPECT(target != NULL && ibv_close_xrcd(first) == EBUSY);
    uint32_t number = target->qp_num;
    EXPECT(FAILS(open_target(other, number), EINVAL));
    struct ibv_qp *shared = open_target(second, number);
    EXPECT(shared && shared->qp_num == number && shared->qp_context == memory && ibv_destroy_qp(target) == 0);
    to_init(shared); /* it lives as long as someone has it */
    EXPECT(ibv_destroy_qp(shared) == 0 && FAILS(open_target(second, number), EINVAL));

    struct ibv_srq_init_attr_ex srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = first, .cq = cq,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD};
    EXPECT(FAILS(ibv_create_srq_ex(context, &srq_attr), EINVAL));
    srq_attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    struct ibv_srq *srq = ibv_create_srq_ex(context, &srq_attr);
    EXPECT(srq && ibv_get_srq_num(srq, &number) == 0 && number && ibv_close_xrcd(first) == EBUSY);
    srq_attr.srq_type = IBV_SRQT_TM;
    EXPECT(FAILS(ibv_create_srq_ex(context, &srq_attr), EOPNOTSUPP));
    EXPECT(ibv_destroy_srq(srq) == 0 && ibv_close_xrcd(second) == 0 && ibv_close_xrcd(other) == 0 && ibv_close_xrcd(first) == 0);
    EXPECT(FAILS(domain(fd, 0), EAGAIN)); /* gone with the last who had it */
    close(fd);
    close(again);
}

static void windows(void) {
    EXPECT(FAILS(ibv_alloc_mw(pd, 3), EINVAL));
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *other = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_qp *qp = make(IBV_QPT_RC, NULL, 0);
    EXPECT(mw && other && qp);
    connect_rc(qp);
    uint32_t key = mw->rkey;
    struct ibv_mw_bind bind = {.wr_id = 5, .bind_info = {mr, (uintptr_t)memory, 64, IBV_ACCESS_ZERO_BASED}};
    EXPECT(ibv_bind_mw(qp, mw, &bind) == EINVAL && mw->rkey == key);
    bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
    EXPECT(ibv_bind_mw(qp, mw, &bind) == 0 && mw->rkey == ibv_inc_rkey(key));
    struct ibv_wc wc = next();
    EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 5);
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .bind_mw = {NULL, 1, bind.bind_info}}, *bad;
    EXPECT(ibv_post_send(qp, &wr, &bad) == EINVAL);
    wr.bind_mw.mw = other;
    wr.bind_mw.rkey = ibv_inc_rkey(other->rkey);
    EXPECT(ibv_post_send(qp, &wr, &bad) == 0 && (wc = next()).status == IBV_WC_SUCCESS);
    EXPECT(ibv_dereg_mr(mr) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    EXPECT(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(other) == 0 && ibv_destroy_qp(qp) == 0);
}

int main(void) {
    EXPECT((context = open_loopback()) != NULL && ibv_query_gid(context, 1, 0, &gid) == 0);
    EXPECT((pd = ibv_alloc_pd(context)) != NULL && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
    EXPECT((mr = ibv_reg_mr(pd, memory, sizeof memory, rights)) != NULL);
    creating();
    modifying();
    lists();
    unaligned();
    batches();
    datagrams();
    xrc();
    windows();
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    return 0;
}
