/* Queue pairs of raw packets, and flows, on a raw device: the program has it to itself. */

#include <infiniband/verbs.h>
#include <unistd.h>

#include "expect.h"

#define FAILS(call, number) (errno = 0, (call) == NULL && errno == (number))

static const uint8_t OWN[6] = {2, 0, 0, 0, 0, 0xA};
enum { HEADER = 14, SLOT = 2048, TAG = 0xBEEF };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_mr *mr;
static uint8_t memory[4 * SLOT];

static struct ibv_qp *make(struct ibv_srq *srq, uint64_t operations) {
    struct ibv_qp_init_attr_ex attr = {.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .srq = srq, .pd = pd,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 128},
        .qp_type = IBV_QPT_RAW_PACKET, .sq_sig_all = 1, .comp_mask = IBV_QP_INIT_ATTR_PD};
    if (operations) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = operations;
    }
    return ibv_create_qp_ex(context, &attr);
}

static void to_rts(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    memset(&attr, 0xFF, sizeof attr); /* what no mask names does not count */
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX) == EINVAL);
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT) == 0);
    attr.qp_state = IBV_QPS_RTR;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == EINVAL);
    EXPECT(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_RTS);
}

/* A flow with these specs behind its attributes. */
struct with_specs {
    struct ibv_flow_attr attr;
    struct ibv_flow_spec_eth eth;
    struct ibv_flow_spec_ipv4_ext ipv4;
    struct ibv_flow_spec_tcp_udp udp;
    struct ibv_flow_spec_action_tag tag;
};
_Static_assert(sizeof(struct with_specs) == 20 + 40 + 32 + 16 + 12, "there is nothing between the specs");

static struct with_specs to_own(void) {
    struct with_specs flow = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .num_of_specs = 4, .port = 1},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof flow.eth},
        .ipv4 = {.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof flow.ipv4,
            .val = {.dst_ip = htobe32(0x0A000009), .proto = 17}, .mask = {.dst_ip = 0xFFFFFFFF, .proto = 0xFF}},
        .udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof flow.udp, .val = {.dst_port = htobe16(5000)}, .mask = {.dst_port = 0xFFFF}},
        .tag = {.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof flow.tag, .tag_id = TAG}};
    memcpy(flow.eth.val.dst_mac, OWN, 6);
    memset(flow.eth.mask.dst_mac, 0xFF, 6);
    return flow;
}

/* A UDP datagram in a frame. */
static int frame(uint8_t *at, uint16_t port) {
    static const uint8_t IP[28] = {0x45, 0, 0, 78, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9, 0x17, 0x70, 0, 0, 0, 58, 0, 0};
    memset(at, 0x5A, 92);
    memcpy(at, OWN, 6);
    memcpy(at + 6, OWN, 6);
    at[12] = 8;
    at[13] = 0;
    memcpy(at + HEADER, IP, sizeof IP);
    at[HEADER + 22] = port >> 8;
    at[HEADER + 23] = port & 0xFF;
    return 92;
}

static void post_receive(struct ibv_qp *qp, uint64_t id, uint32_t length) {
    struct ibv_sge sge = {.addr = (uintptr_t)memory + SLOT, .length = length, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* The next completion stays open. */
static void next(void) {
    struct ibv_poll_cq_attr attr = {0};
    int done;
    while ((done = ibv_start_poll(cq, &attr)) == ENOENT)
        ;
    EXPECT(done == 0);
}

static void refusals(struct ibv_qp *qp) {
    struct with_specs flow = to_own();
    EXPECT(FAILS(ibv_create_flow(qp, NULL), EINVAL));
#define REFUSED(member, value, number)                                                                                           \
    flow = to_own();                                                                                                             \
    flow.member = value;                                                                                                         \
    EXPECT(FAILS(ibv_create_flow(qp, &flow.attr), number))
    REFUSED(attr.comp_mask, 1, EOPNOTSUPP); /* as everywhere */
    REFUSED(attr.port, 0, EINVAL);
    REFUSED(attr.port, 2, EINVAL);
    REFUSED(attr.type, 4, EINVAL);
    REFUSED(attr.type, IBV_FLOW_ATTR_SNIFFER, EINVAL); /* which has no specs */
    REFUSED(attr.num_of_specs, 11, EINVAL);
    REFUSED(attr.flags, 1, EINVAL);
    REFUSED(attr.flags, IBV_FLOW_ATTR_FLAGS_EGRESS, EOPNOTSUPP);
    REFUSED(eth.type, 0x77, EINVAL);
    REFUSED(eth.size, 0, EINVAL);
    REFUSED(eth.size, 30, EINVAL);
    REFUSED(ipv4.mask.flags, 1, EOPNOTSUPP);
    REFUSED(ipv4.type, IBV_FLOW_SPEC_ESP, EOPNOTSUPP);
    REFUSED(udp.type, IBV_FLOW_SPEC_VXLAN_TUNNEL, EOPNOTSUPP);
    REFUSED(tag.type, IBV_FLOW_SPEC_ACTION_COUNT, EOPNOTSUPP);
    flow = to_own();
    flow.eth.val.ether_type = htobe16(0x86DD);
    flow.eth.mask.ether_type = 0xFFFF;
    EXPECT(FAILS(ibv_create_flow(qp, &flow.attr), EINVAL)); /* and IPv4 */

    union ibv_gid group = {.raw = {0xFF, 0x0E, [15] = 1}};
    EXPECT(ibv_attach_mcast(qp, &group, 0) == EINVAL);
    struct ibv_qp_init_attr datagrams = {.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_UD};
    struct ibv_qp *other = ibv_create_qp(pd, &datagrams);
    flow = to_own();
    EXPECT(other && FAILS(ibv_create_flow(other, &flow.attr), EINVAL));
    EXPECT(ibv_destroy_qp(other) == 0);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    EXPECT(FAILS(make(srq, 0), EINVAL) && ibv_destroy_srq(srq) == 0);
    EXPECT(FAILS(make(NULL, IBV_QP_EX_WITH_SEND_WITH_IMM), EOPNOTSUPP));
    EXPECT(FAILS(ibv_create_rwq_ind_table(context, NULL), EOPNOTSUPP));
    struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1000};
    EXPECT(ibv_modify_qp_rate_limit(qp, &rate) == EOPNOTSUPP);
}

int main(void) {
    struct ibv_device **devices = ibv_get_device_list(NULL);
    EXPECT(devices && devices[0]);
    context = ibv_open_device(devices[0]);
    EXPECT(context);
    ibv_free_device_list(devices);
    struct ibv_device_attr_ex attr;
    EXPECT(ibv_query_device_ex(context, NULL, &attr) == 0);
    EXPECT(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
    EXPECT(attr.raw_packet_caps == 0 && !(attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM));
    pd = ibv_alloc_pd(context);
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_FLOW_TAG};
    cq = ibv_create_cq_ex(context, &cq_attr);
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *from = make(NULL, IBV_QP_EX_WITH_SEND), *at = make(NULL, 0);
    EXPECT(pd && cq && mr && from && at && at->qp_type == IBV_QPT_RAW_PACKET);
    to_rts(from);
    to_rts(at);
    refusals(at);
    struct with_specs wanted = to_own();
    struct ibv_flow *flow = ibv_create_flow(at, &wanted.attr);
    EXPECT(flow && flow->context == context);
    EXPECT(ibv_destroy_qp(at) == EBUSY);

    /* one that is for it, behind one that is not */
    post_receive(at, 7, SLOT);
    frame(memory, 5001);
    int length = frame(memory + 3 * SLOT, 5000);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    EXPECT(ibv_post_send(from, &wr, &bad) == 0);
    struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(from);
    ibv_wr_start(extended);
    extended->wr_id = 2;
    ibv_wr_send(extended);
    ibv_wr_set_inline_data(extended, memory + 3 * SLOT, length);
    EXPECT(ibv_wr_complete(extended) == 0);
    int sent = 0, received = 0;
    while (sent + received < 3) {
        next();
        EXPECT(cq->status == IBV_WC_SUCCESS);
        if (ibv_wc_read_opcode(cq) == IBV_WC_RECV) {
            EXPECT(cq->wr_id == 7 && ibv_wc_read_byte_len(cq) == (uint32_t)length && ibv_wc_read_wc_flags(cq) == 0);
            EXPECT(ibv_wc_read_flow_tag(cq) == TAG && ibv_wc_read_qp_num(cq) == at->qp_num);
            received++;
        } else {
            sent++;
        }
        ibv_end_poll(cq);
    }
    EXPECT(received == 1 && memcmp(memory + SLOT, memory + 3 * SLOT, length) == 0);

    /* what cannot be sent */
    wr.send_flags = IBV_SEND_IP_CSUM;
    EXPECT(ibv_post_send(from, &wr, &bad) == EINVAL);
    wr.send_flags = 0;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    EXPECT(ibv_post_send(from, &wr, &bad) == EINVAL);
    wr.opcode = IBV_WR_SEND;
    sge.length = HEADER - 1;
    EXPECT(ibv_post_send(from, &wr, &bad) == 0);
    next();
    EXPECT(cq->status == IBV_WC_LOC_LEN_ERR);
    ibv_end_poll(cq);

    EXPECT(ibv_destroy_flow(flow) == 0);
    post_receive(at, 8, SLOT);
    EXPECT(ibv_destroy_qp(at) == 0 && ibv_destroy_qp(from) == 0);
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0 && ibv_dealloc_pd(pd) == 0);
    EXPECT(ibv_close_device(context) == 0);
    return 0;
}
