/* One mistake each, which MISTAKE names: the library explains it. With REPAIRED the same program without the mistake, of which the
   library says nothing. */

#include "pair.h"

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

static const struct mistake MISTAKES[] = {{"no_gid", no_gid}, {"wrong_order", wrong_order}, {"missing_attribute", missing_attribute}, {"too_many_sges", too_many_sges},
    {"inline_too_long", inline_too_long}, {"bad_lkey", bad_lkey}, {"bad_rkey", bad_rkey}, {"missing_right", missing_right},
    {"no_receive", no_receive}, {"wrong_number", wrong_number}, {"wrong_psn", wrong_psn}, {"wrong_qkey", wrong_qkey},
    {"cq_overrun", cq_overrun}, {"short_receive", short_receive}, {"post_in_reset", post_in_reset}, {"queue_full", queue_full},
    {"remote_without_local", remote_without_local}, {"domain_in_use", domain_in_use}};

int main(void) {
    return play(MISTAKES, sizeof MISTAKES / sizeof *MISTAKES);
}
