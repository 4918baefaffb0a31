/* finding: nothing_signaled

   Nothing is signaled, since nobody is interested in the completions: the send queue is never given back. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL);
    EXPECT(to_init(a, 0) == 0 && ibv_modify_qp(a, &rtr, IBV_QP_STATE) == 0);
    EXPECT(ibv_modify_qp(a, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    struct ibv_ah_attr way = {.grh = {.dgid = gid}, .is_global = 1, .port_num = 1};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    for (int i = 0; i < 20; i++) {
        int is_signaled = !WRONG && i % 2;
        struct ibv_sge sge = part(8);
        struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
            .send_flags = is_signaled ? IBV_SEND_SIGNALED : 0}, *bad;
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = a->qp_num;
        wr.wr.ud.remote_qkey = 0x11111111;
        while (ibv_post_send(a, &wr, &bad) == ENOMEM)
            usleep(1000);
        if (is_signaled)
            EXPECT(errors_among(1) == 0);
        wait_a_while();
    }
    EXPECT(ibv_destroy_ah(ah) == 0);
    tear_down();
    return 0;
}
