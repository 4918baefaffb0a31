/* The limits of a device that shows itself as a given adapter: at each a call succeeds, one beyond it the call fails with the
 * error that the adapter's driver gives. The environment says what to expect; attributes are printed. */

#include "expect.h"

#include <infiniband/verbs.h>
#include <stdint.h>

static struct ibv_context *context;
static struct ibv_device_attr attr;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static int sizes, objects, missing;

static int number(const char *name) {
    EXPECT(getenv(name) != NULL);
    return atoi(getenv(name));
}

#define SHOW(member) fprintf(stderr, #member " %llu\n", (unsigned long long)attr.member)

static void show(void) {
    fprintf(stderr, "fw_ver %s\n", attr.fw_ver);
    SHOW(vendor_id);
    SHOW(vendor_part_id);
    SHOW(hw_ver);
    SHOW(max_mr_size);
    SHOW(page_size_cap);
    SHOW(device_cap_flags);
    SHOW(max_qp);
    SHOW(max_qp_wr);
    SHOW(max_sge);
    SHOW(max_sge_rd);
    SHOW(max_cq);
    SHOW(max_cqe);
    SHOW(max_mr);
    SHOW(max_pd);
    SHOW(max_mw);
    SHOW(max_ah);
    SHOW(max_srq);
    SHOW(max_srq_wr);
    SHOW(max_srq_sge);
    SHOW(max_mcast_grp);
    SHOW(max_mcast_qp_attach);
    SHOW(max_qp_rd_atom);
    SHOW(max_qp_init_rd_atom);
    SHOW(max_res_rd_atom);
    SHOW(max_pkeys);
    SHOW(local_ca_ack_delay);
}

static const struct ibv_qp_cap SMALL = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};

static struct ibv_qp *make_qp(struct ibv_qp_cap cap) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = cap};
    errno = 0;
    return ibv_create_qp(pd, &init);
}

/* What a queue pair with these sizes fails with; 0: nothing. */
static int of_qp(struct ibv_qp_cap cap) {
    struct ibv_qp *qp = make_qp(cap);
    int error = qp ? 0 : errno;
    if (qp)
        EXPECT(ibv_destroy_qp(qp) == 0);
    return error;
}

static int of_cq(int entries, int vector) {
    errno = 0;
    struct ibv_cq *made = ibv_create_cq(context, entries, NULL, NULL, vector);
    int error = made ? 0 : errno;
    if (made)
        EXPECT(ibv_destroy_cq(made) == 0);
    return error;
}

static int of_srq(uint32_t requests, uint32_t elements) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = requests, .max_sge = elements}};
    errno = 0;
    struct ibv_srq *made = ibv_create_srq(pd, &init);
    int error = made ? 0 : errno;
    if (made)
        EXPECT(ibv_destroy_srq(made) == 0);
    return error;
}

static int of_device_memory(size_t length) {
    struct ibv_alloc_dm_attr wanted = {.length = length};
    errno = 0;
    struct ibv_dm *made = ibv_alloc_dm(context, &wanted);
    int error = made ? 0 : errno;
    if (made)
        EXPECT(ibv_free_dm(made) == 0);
    return error;
}

#define LIMIT(member, most)                                                                                                      \
    do {                                                                                                                         \
        struct ibv_qp_cap cap = SMALL;                                                                                           \
        cap.member = (most);                                                                                                     \
        EXPECT(of_qp(cap) == 0);                                                                                                 \
        cap.member = (most) + 1;                                                                                                 \
        EXPECT(of_qp(cap) == sizes);                                                                                             \
    } while (0)

static void to_init(struct ibv_qp *qp) {
    struct ibv_qp_attr change = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    EXPECT(ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

static struct ibv_qp_attr peer(int index, int reads) {
    struct ibv_qp_attr change = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 17, .max_dest_rd_atomic = reads};
    change.min_rnr_timer = 12;
    change.ah_attr.is_global = 1;
    change.ah_attr.port_num = 1;
    change.ah_attr.grh.sgid_index = index;
    EXPECT(ibv_query_gid(context, 1, index, &change.ah_attr.grh.dgid) == 0);
    return change;
}

static void connections(int v1) {
    const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                       IBV_QP_MIN_RNR_TIMER;
    struct ibv_qp *qp = make_qp(SMALL);
    EXPECT(qp != NULL);
    to_init(qp);
    struct ibv_qp_attr change = peer(v1 ? 0 : 1, 1);
    EXPECT(ibv_modify_qp(qp, &change, to_rtr) == (v1 ? EINVAL : 0));
    if (v1) {
        change = peer(1, attr.max_qp_rd_atom + 1);
        EXPECT(ibv_modify_qp(qp, &change, to_rtr) == EINVAL);
        change = peer(1, attr.max_qp_rd_atom);
        EXPECT(ibv_modify_qp(qp, &change, to_rtr) == 0);
    }
    EXPECT(ibv_destroy_qp(qp) == 0);
}

/* Programs ask for every entry; those that are not used are zero. */
static void gids(void) {
    union ibv_gid gid;
    int entries = number("GIDS");
    for (int i = 0; i < entries; i++)
        EXPECT(ibv_query_gid(context, 1, i, &gid) == 0);
    EXPECT(ibv_query_gid(context, 1, entries, &gid) == -1);
}

static void address_handles(int v1) {
    struct ibv_ah_attr way = peer(1, 0).ah_attr;
    struct ibv_ah *made[200];
    int count = 0, most = attr.max_ah < 200 ? attr.max_ah : 3;
    for (; count < most; count++)
        EXPECT((made[count] = ibv_create_ah(pd, &way)) != NULL);
    if (most == attr.max_ah) {
        errno = 0;
        EXPECT(ibv_create_ah(pd, &way) == NULL && errno == objects);
    }
    while (count > 0)
        EXPECT(ibv_destroy_ah(made[--count]) == 0);
    way.grh.sgid_index = 0;
    errno = 0;
    struct ibv_ah *first = ibv_create_ah(pd, &way);
    EXPECT(v1 ? first == NULL && errno == EINVAL : first != NULL);
}

static void connect_to(struct ibv_qp *qp, uint32_t number) {
    to_init(qp);
    struct ibv_qp_attr change = peer(1, 1);
    change.dest_qp_num = number;
    const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                       IBV_QP_MIN_RNR_TIMER;
    EXPECT(ibv_modify_qp(qp, &change, to_rtr) == 0);
    change = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    EXPECT(ibv_modify_qp(qp, &change,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* What a request for a peer that is not there fails with when it is posted; 0: nothing. */
static int of_post(int opcode, int elements) {
    static uint64_t words[64];
    struct ibv_qp_cap cap = SMALL;
    cap.max_send_sge = elements;
    struct ibv_qp *qp = make_qp(cap);
    EXPECT(qp != NULL);
    connect_to(qp, 17);
    struct ibv_mr *mr = ibv_reg_mr(pd, words, sizeof words, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(mr != NULL);
    struct ibv_sge list[64];
    for (int i = 0; i < elements; i++)
        list[i] = (struct ibv_sge){.addr = (uintptr_t)&words[i], .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = list, .num_sge = elements, .opcode = opcode}, *bad = NULL;
    int error = ibv_post_send(qp, &wr, &bad);
    EXPECT(error == 0 || bad == &wr);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
    return error;
}

static void requests(void) {
    int elements = number("SEND_SGE");
    EXPECT(of_post(IBV_WR_RDMA_WRITE, elements) == 0 && of_post(IBV_WR_RDMA_READ, attr.max_sge_rd) == 0);
    if (attr.max_sge_rd < elements)
        EXPECT(of_post(IBV_WR_RDMA_READ, attr.max_sge_rd + 1) == EINVAL);
    int expected = attr.atomic_cap == IBV_ATOMIC_NONE ? EINVAL : 0;
    EXPECT(of_post(IBV_WR_ATOMIC_CMP_AND_SWP, 1) == expected && of_post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1) == expected);
}

/* The flags of a receive with immediate data. */
static void receive(unsigned flags) {
    struct ibv_qp *qp = make_qp(SMALL);
    EXPECT(qp != NULL);
    connect_to(qp, qp->qp_num);
    struct ibv_recv_wr recv = {.wr_id = 1}, *bad_recv;
    EXPECT(ibv_post_recv(qp, &recv, &bad_recv) == 0);
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED}, *bad;
    EXPECT(ibv_post_send(qp, &send, &bad) == 0);
    for (int left = 2; left > 0;) {
        struct ibv_wc wc;
        if (ibv_poll_cq(cq, 1, &wc) == 0)
            continue;
        EXPECT(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 2 || wc.wc_flags == flags));
        left--;
    }
    EXPECT(ibv_destroy_qp(qp) == 0);
}

/* Requests are posted in RESET, and leave with one that is posted in RTS, if the adapter takes them. */
static void early(int is_taken) {
    struct ibv_qp_cap cap = SMALL;
    cap.max_send_wr = 2;
    struct ibv_qp *qp = make_qp(cap);
    EXPECT(qp != NULL);
    struct ibv_recv_wr recv = {.wr_id = 1}, *bad_recv;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    int error = is_taken ? 0 : EINVAL;
    EXPECT(ibv_post_recv(qp, &recv, &bad_recv) == error && ibv_post_send(qp, &send, &bad) == error);
    if (is_taken) {
        connect_to(qp, qp->qp_num);
        send.wr_id = 3;
        EXPECT(ibv_post_recv(qp, &recv, &bad_recv) == ENOMEM && ibv_post_send(qp, &send, &bad) == 0);
        struct ibv_wc wc;
        for (int left = 2; left > 0;) {
            if (ibv_poll_cq(cq, 1, &wc) == 0)
                continue;
            EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id <= 2);
            left--;
        }
    }
    EXPECT(ibv_destroy_qp(qp) == 0);
}

/* The length is looked at before the memory. */
static void regions(void) {
    if (attr.max_mr_size == UINT64_MAX)
        return;
    errno = 0;
    EXPECT(ibv_reg_mr(pd, (void *)4096, attr.max_mr_size + 1, 0) == NULL && errno == EINVAL);
    errno = 0;
    EXPECT(ibv_reg_mr(pd, (void *)4096, attr.max_mr_size, 0) == NULL && errno == EFAULT);
}

int main(void) {
    int devices = 0;
    struct ibv_device **list = ibv_get_device_list(&devices);
    EXPECT(list && devices >= number("DEVICES"));
    EXPECT(strcmp(ibv_get_device_name(list[0]), getenv("NAME")) == 0);
    sizes = number("SIZES"), objects = number("OBJECTS"), missing = number("MISSING");
    EXPECT((context = ibv_open_device(list[0])) != NULL);
    /* all of them can be open at once */
    for (int i = 1; i < number("DEVICES"); i++)
        EXPECT(ibv_open_device(list[i]) != NULL);
    EXPECT(ibv_query_device(context, &attr) == 0);
    show();
    EXPECT((pd = ibv_alloc_pd(context)) != NULL);
    EXPECT((cq = ibv_create_cq(context, 16, NULL, NULL, 0)) != NULL);

    EXPECT(of_cq(attr.max_cqe + 1, 0) == sizes);
    if (attr.max_cqe < 65536)
        EXPECT(of_cq(attr.max_cqe, 0) == 0);
    EXPECT(context->num_comp_vectors == number("VECTORS"));
    EXPECT(of_cq(16, context->num_comp_vectors - 1) == 0 && of_cq(16, context->num_comp_vectors) == EINVAL);

    LIMIT(max_send_wr, number("DEPTH"));
    LIMIT(max_recv_wr, attr.max_qp_wr);
    LIMIT(max_send_sge, number("SEND_SGE"));
    LIMIT(max_recv_sge, number("RECV_SGE"));
    LIMIT(max_inline_data, number("INLINE"));
    struct ibv_qp_cap cap = SMALL;
    cap.max_send_sge = 40;
    EXPECT(of_qp(cap) == sizes);

    if (attr.max_srq == 0) {
        EXPECT(of_srq(1, 1) == missing);
    } else {
        EXPECT(of_srq(attr.max_srq_wr, 1) == 0 && of_srq(attr.max_srq_wr + 1, 1) == sizes);
        EXPECT(of_srq(1, attr.max_srq_sge) == 0 && of_srq(1, attr.max_srq_sge + 1) == sizes);
    }
    int memory = number("DEVICE_MEMORY");
    EXPECT(memory == 0 || of_device_memory(memory) == 0);
    EXPECT(of_device_memory(memory + 4096) == (memory ? objects : missing));
    gids();
    connections(number("V1"));
    address_handles(number("V1"));
    requests();
    receive(number("RECEIVED"));
    early(number("EARLY"));
    regions();
    return 0;
}
