/* explained: queue_of_zero
   says: cap.max_recv_wr

   The attributes have no number of receives. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = WRONG ? 0 : 4, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((a = ibv_create_qp(pd, &attr)) != NULL && to_init(a, 0) == 0);
    struct ibv_sge sge = part(64);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(a, &wr, &bad) == (WRONG ? ENOMEM : 0));
    tear_down();
    return 0;
}
