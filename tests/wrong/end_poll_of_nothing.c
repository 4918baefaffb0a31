/* finding: outside_batch

   ibv_end_poll is called although ibv_start_poll has found nothing. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_cq_init_attr_ex attr = {.cqe = 64};
    struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &attr);
    EXPECT(extended != NULL && ibv_destroy_cq(cq) == 0);
    cq = ibv_cq_ex_to_cq(extended);
    struct ibv_poll_cq_attr none = {0};
    EXPECT(ibv_start_poll(extended, &none) == ENOENT);
    if (WRONG)
        ibv_end_poll(extended);
    tear_down();
    return 0;
}
