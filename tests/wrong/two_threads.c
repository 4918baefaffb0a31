/* finding: used_by_two_threads
   stacks: called, the other thread

   Two threads poll a completion queue that was made for one. */

#include <pthread.h>

#include "wrong.h"

static volatile int ends;

static void *polls(void *unused) {
    struct ibv_wc wc;
    while (!ends)
        EXPECT(ibv_poll_cq(cq, 1, &wc) == 0);
    return unused;
}

int main(void) {
    set_up();
    EXPECT(ibv_destroy_cq(cq) == 0);
    struct ibv_cq_init_attr_ex attr = {
        .cqe = 64, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = WRONG ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0};
    struct ibv_cq_ex *made = ibv_create_cq_ex(context, &attr);
    EXPECT(made != NULL);
    cq = ibv_cq_ex_to_cq(made);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, polls, NULL) == 0);
    sleep(1);
    ends = 1;
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    tear_down();
    return 0;
}
