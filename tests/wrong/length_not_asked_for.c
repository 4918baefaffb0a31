/* finding: field_not_requested

   The length of a completion is read that the queue was made without. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = WRONG ? 0 : IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &attr);
    EXPECT(extended != NULL && ibv_destroy_cq(cq) == 0);
    cq = ibv_cq_ex_to_cq(extended);
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    struct ibv_poll_cq_attr none = {0};
    while (ibv_start_poll(extended, &none) != 0)
        usleep(1000);
    EXPECT(ibv_wc_read_byte_len(extended) == 8);
    ibv_end_poll(extended);
    tear_down();
    return 0;
}
