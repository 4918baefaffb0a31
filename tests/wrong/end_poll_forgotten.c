/* finding: batch_not_ended
   stacks: called, started

   A poll that has found a completion is left early, without ibv_end_poll. */

#include "wrong.h"

static struct ibv_cq_ex *extended;

static void end_late(int signal) {
    (void)signal;
    ibv_end_poll(extended);
}

int main(void) {
    set_up();
    struct ibv_cq_init_attr_ex attr = {.cqe = 16};
    extended = ibv_create_cq_ex(context, &attr);
    EXPECT(extended != NULL && ibv_destroy_cq(cq) == 0);
    cq = ibv_cq_ex_to_cq(extended);
    connect_both();
    EXPECT(send_with(a, part(8), IBV_WR_RDMA_READ, mr->rkey, 0) == 0);
    struct ibv_poll_cq_attr none = {0};
    while (ibv_start_poll(extended, &none) != 0)
        usleep(1000);
    if (WRONG) { /* or it would wait for ever */
        EXPECT(signal(SIGALRM, end_late) != SIG_ERR);
        alarm(1);
    } else
        ibv_end_poll(extended);
    EXPECT(ibv_start_poll(extended, &none) == ENOENT);
    tear_down();
    return 0;
}
