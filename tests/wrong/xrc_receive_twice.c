/* finding: receive_overlap

   The receives of an XRC shared receive queue have one buffer. */

#include <fcntl.h>

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &domain);
    EXPECT(xrcd != NULL);
    struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd, .cq = cq,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
    struct ibv_srq *srq = ibv_create_srq_ex(context, &attr);
    EXPECT(srq != NULL);
    for (int i = 0; i < 2; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)memory + 1024 + (WRONG ? 0 : 512 * i), .length = 512, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
        EXPECT(context->ops.post_srq_recv(srq, &wr, &bad) == 0);
    }
    EXPECT(ibv_destroy_srq(srq) == 0 && ibv_close_xrcd(xrcd) == 0);
    tear_down();
    return 0;
}
