/* finding: used_by_two_threads
   stacks: called, the other thread

   Two threads poll a completion queue of a thread domain. */

#include <pthread.h>

#include "wrong.h"

static pthread_barrier_t both;

static void *polls(void *unused) {
    struct ibv_wc wc;
    pthread_barrier_wait(&both);
    for (int i = 0; i < 2000; i++)
        EXPECT(ibv_poll_cq(cq, 1, &wc) == 0);
    return unused;
}

int main(void) {
    set_up();
    struct ibv_td_init_attr init = {0};
    struct ibv_td *td = ibv_alloc_td(context, &init);
    struct ibv_parent_domain_init_attr domain = {.pd = pd, .td = WRONG ? td : NULL};
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &domain);
    EXPECT(td != NULL && parent != NULL && ibv_destroy_cq(cq) == 0);
    struct ibv_cq_init_attr_ex attr = {.cqe = 64, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
    struct ibv_cq_ex *made = ibv_create_cq_ex(context, &attr);
    EXPECT(made != NULL);
    cq = ibv_cq_ex_to_cq(made);
    pthread_t threads[2];
    EXPECT(pthread_barrier_init(&both, NULL, 2) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, polls, NULL) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
    EXPECT((cq = ibv_create_cq(context, 1, NULL, NULL, 0)) != NULL);
    tear_down();
    return 0;
}
