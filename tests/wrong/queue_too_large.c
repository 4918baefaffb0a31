/* explained: object_size

   A million requests, without a look at max_qp_wr. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = WRONG ? 1000000 : 100, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT(((a = ibv_create_qp(pd, &attr)) == NULL) == WRONG);
    tear_down();
    return 0;
}
