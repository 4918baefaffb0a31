/* Objects as programs hold them: numbers that were overwritten, objects that are none any more, keys, regions without bytes. */

#define _GNU_SOURCE

#include <infiniband/verbs.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static struct ibv_context *context, *second;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[4096];

/* A call on an object whose number the program has overwritten: nothing happens. The same with a context that is not its own. */
#define GARBLED(object, call)                                                                                                    \
    do {                                                                                                                         \
        (object)->handle ^= 0xDEADBEEF;                                                                                          \
        errno = 0;                                                                                                               \
        EXPECT((call) == ENOENT && errno == ENOENT);                                                                             \
        (object)->handle ^= 0xDEADBEEF;                                                                                          \
    } while (0)
#define MOVED(object, call)                                                                                                      \
    do {                                                                                                                         \
        (object)->context = second;                                                                                              \
        EXPECT((call) == ENOENT);                                                                                                \
        (object)->context = context;                                                                                             \
    } while (0)
/* An object is destroyed, and then again. */
#define TWICE(call) EXPECT((call) == 0 && (call) == ENOENT)
/* A call that makes nothing of an object whose number was overwritten. */
#define NOTHING(object, call)                                                                                                    \
    do {                                                                                                                         \
        (object)->handle ^= 0xDEADBEEF;                                                                                          \
        EXPECT((call) == NULL);                                                                                                  \
        (object)->handle ^= 0xDEADBEEF;                                                                                          \
    } while (0)

static struct ibv_qp *make(enum ibv_qp_type type, struct ibv_cq *queue, struct ibv_srq *srq) {
    struct ibv_qp_init_attr attr = {.send_cq = queue, .recv_cq = queue, .srq = srq, .qp_type = type, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    return ibv_create_qp(pd, &attr);
}

static struct ibv_wc next(void) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        continue;
    EXPECT(count == 1);
    return wc;
}

static void numbers(void) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mw *one = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    struct ibv_qp *qp = make(IBV_QPT_RC, cq, srq);
    union ibv_gid gid;
    EXPECT(ibv_query_gid(context, 1, 0, &gid) == 0);
    struct ibv_ah_attr way = {.grh = {.dgid = gid, .hop_limit = 3}, .is_global = 1, .port_num = 1};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    EXPECT(mr && one && two && srq && qp && ah);

    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_qp_init_attr init;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    GARBLED(qp, ibv_modify_qp(qp, &attr, mask));
    GARBLED(qp, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    GARBLED(qp, ibv_destroy_qp(qp));
    GARBLED(mr, ibv_dereg_mr(mr));
    GARBLED(one, ibv_dealloc_mw(one));
    GARBLED(two, ibv_dealloc_mw(two));
    GARBLED(srq, ibv_destroy_srq(srq));
    GARBLED(ah, ibv_destroy_ah(ah));
    GARBLED(cq, ibv_destroy_cq(cq));
    GARBLED(cq, ibv_resize_cq(cq, 10));
    GARBLED(pd, ibv_dealloc_pd(pd));
    NOTHING(pd, ibv_reg_mr(pd, memory, sizeof memory, 0));
    NOTHING(pd, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
    NOTHING(pd, make(IBV_QPT_RC, cq, NULL));
    NOTHING(cq, make(IBV_QPT_RC, cq, NULL));
    NOTHING(srq, make(IBV_QPT_RC, cq, srq));
    MOVED(qp, ibv_destroy_qp(qp));
    MOVED(mr, ibv_dereg_mr(mr));
    MOVED(pd, ibv_dealloc_pd(pd));

    TWICE(ibv_destroy_qp(qp));
    TWICE(ibv_dereg_mr(mr));
    TWICE(ibv_destroy_srq(srq));
    TWICE(ibv_destroy_ah(ah));
    /* the program looks for the function in the object itself */
    int (*dealloc_mw)(struct ibv_mw *) = context->ops.dealloc_mw;
    TWICE(dealloc_mw(one));
    TWICE(dealloc_mw(two));
}

/* Pointers to what is no object, or one of another kind. */
static void pointers(void) {
    struct ibv_mr none = {.context = context, .pd = pd};
    EXPECT(ibv_dereg_mr(&none) == ENOENT && ibv_dereg_mr(NULL) == EINVAL);
    EXPECT(ibv_dereg_mr((struct ibv_mr *)(uintptr_t)16) == ENOENT && ibv_dereg_mr((struct ibv_mr *)pd) == ENOENT);
    EXPECT(ibv_destroy_qp((struct ibv_qp *)cq) == ENOENT && ibv_destroy_cq((struct ibv_cq *)pd) == ENOENT);
    EXPECT(ibv_alloc_pd((struct ibv_context *)&none) == NULL && errno == ENOENT);
    EXPECT(ibv_close_device((struct ibv_context *)pd) == ENOENT);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    EXPECT(channel != NULL);
    TWICE(ibv_destroy_comp_channel(channel));
}

/* A queue pair is of one context. */
static void contexts(void) {
    struct ibv_cq *other = ibv_create_cq(second, 8, NULL, NULL, 0);
    EXPECT(other != NULL && make(IBV_QPT_RC, other, NULL) == NULL && errno == EINVAL);
    EXPECT(ibv_destroy_cq(other) == 0);
}

/* Many programs tell their peers the L_Key, which works on network cards. */
static void keys(void) {
    int distinct = getenv("ROCE_DISTINCT_KEYS") != NULL;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(mr != NULL && (mr->lkey == mr->rkey) == !distinct);
    struct ibv_qp *qp = make(IBV_QPT_RC, cq, NULL);
    connect_with_itself(qp);
    memcpy(memory, "by the L_Key", 13);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 13, .lkey = mr->lkey};
    struct ibv_send_wr write = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    write.wr.rdma.remote_addr = (uintptr_t)memory + 100;
    write.wr.rdma.rkey = mr->lkey;
    EXPECT(ibv_post_send(qp, &write, &bad) == 0);
    EXPECT((next().status == IBV_WC_SUCCESS) == !distinct);
    EXPECT(distinct || strcmp(memory + 100, "by the L_Key") == 0);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

static void no_bytes(void) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(mr != NULL && mr->length == 0);
    struct ibv_mr *nowhere = ibv_reg_mr(pd, NULL, 0, 0);
    EXPECT(nowhere != NULL && ibv_dereg_mr(nowhere) == 0);
    struct ibv_qp *qp = make(IBV_QPT_RC, cq, NULL);
    connect_with_itself(qp);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 0, .lkey = mr->lkey};
    struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, write = send, *bad;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.wr.rdma.remote_addr = (uintptr_t)memory;
    write.wr.rdma.rkey = mr->rkey;
    EXPECT(ibv_post_recv(qp, &recv, &bad_recv) == 0 && ibv_post_send(qp, &write, &bad) == 0 && ibv_post_send(qp, &send, &bad) == 0);
    for (int i = 0; i < 3; i++)
        EXPECT(next().status == IBV_WC_SUCCESS);
    /* there is nothing in it */
    sge.length = 1;
    EXPECT(ibv_post_send(qp, &write, &bad) == 0 && next().status == IBV_WC_LOC_PROT_ERR);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

/* A buffer that a descriptor stands for is a region's memory; the region's addresses are its own. */
static void dma_bufs(void) {
    const uint64_t offset = 4096 + 8, iova = ((uint64_t)1 << 40) + 8;
    int file = memfd_create("buffer", MFD_CLOEXEC);
    EXPECT(file >= 0 && ftruncate(file, 3 * 4096) == 0 && pwrite(file, "from the buffer", 16, offset) == 16);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, offset, 4096, iova, file, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(mr != NULL && mr->addr == (void *)(uintptr_t)offset && mr->length == 4096);
    struct ibv_qp *qp = make(IBV_QPT_RC, cq, NULL);
    connect_with_itself(qp);
    struct ibv_sge sge = {.addr = iova, .length = 16, .lkey = mr->lkey};
    struct ibv_send_wr write = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    write.wr.rdma.remote_addr = iova + 4000;
    write.wr.rdma.rkey = mr->rkey;
    EXPECT(ibv_post_send(qp, &write, &bad) == 0 && next().status == IBV_WC_SUCCESS);
    char found[16];
    EXPECT(pread(file, found, 16, offset + 4000) == 16 && strcmp(found, "from the buffer") == 0);
    EXPECT(close(file) == 0 && ibv_post_send(qp, &write, &bad) == 0 && next().status == IBV_WC_SUCCESS);
    write.wr.rdma.remote_addr = iova + 4096;
    EXPECT(ibv_post_send(qp, &write, &bad) == 0 && next().status != IBV_WC_SUCCESS);
    errno = 0;
    EXPECT(ibv_reg_dmabuf_mr(pd, 0, 4096, 1, -1, 0) == NULL && errno == EINVAL);
    EXPECT(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0) == NULL && errno == EOPNOTSUPP);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

/* Of the key of a bind request the low eight bits count. */
static void windows(void) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mws[] = {ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_alloc_mw(pd, IBV_MW_TYPE_2)};
    struct ibv_qp *qp = make(IBV_QPT_RC, cq, NULL);
    EXPECT(mr && mws[0] && mws[1] && qp);
    connect_with_itself(qp);
    for (int i = 0; i < 2; i++) {
        uint32_t index = mws[i]->rkey & ~0xFFu;
        struct ibv_send_wr *bad, bind = {.opcode = IBV_WR_BIND_MW,
            .bind_mw = {mws[i], 1042, {mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE}}};
        EXPECT(ibv_post_send(qp, &bind, &bad) == 0 && next().status == IBV_WC_SUCCESS);
        EXPECT(mws[i]->rkey == (index | (1042 & 0xFF)));
        struct ibv_sge sge = {.addr = (uintptr_t)memory + 64, .length = 8, .lkey = mr->lkey};
        struct ibv_send_wr write = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
        write.wr.rdma.remote_addr = (uintptr_t)memory;
        write.wr.rdma.rkey = mws[i]->rkey;
        EXPECT(ibv_post_send(qp, &write, &bad) == 0 && next().status == IBV_WC_SUCCESS);
    }
    EXPECT(mws[0]->rkey != mws[1]->rkey);
    EXPECT(ibv_dealloc_mw(mws[0]) == 0 && ibv_dealloc_mw(mws[1]) == 0 && ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

/* Requests that datagram queue pairs do not have can be posted, and fail. */
static void datagrams(void) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    for (int i = 0; i < 3; i++) {
        struct ibv_qp *qp = make(IBV_QPT_UD, cq, NULL);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11};
        EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
        attr.qp_state = IBV_QPS_RTR;
        EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
        attr.qp_state = IBV_QPS_RTS;
        EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
        struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
        wr.opcode = (unsigned[]){IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}[i];
        EXPECT(ibv_post_send(qp, &wr, &bad) == 0 && next().status == IBV_WC_LOC_QP_OP_ERR);
        EXPECT(ibv_destroy_qp(qp) == 0);
    }
    EXPECT(ibv_dereg_mr(mr) == 0);
}

int main(void) {
    EXPECT((context = open_loopback()) != NULL && (second = open_loopback()) != NULL && context != second);
    EXPECT((pd = ibv_alloc_pd(context)) != NULL && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
    numbers();
    pointers();
    contexts();
    keys();
    no_bytes();
    dma_bufs();
    windows();
    datagrams();
    TWICE(ibv_destroy_cq(cq));
    TWICE(ibv_dealloc_pd(pd));
    TWICE(ibv_close_device(second));
    EXPECT(ibv_close_device(context) == 0);
    return 0;
}
