/* finding: used_by_two_threads
   stacks: called, the other thread

   Two threads begin batches of a queue pair of a thread domain; with a lock they may. */

#include <pthread.h>

#include "wrong.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *start_many(void *batch) {
    pthread_barrier_wait(&both);
    for (int i = 0; i < 2000; i++) {
        EXPECT(WRONG || pthread_mutex_lock(&lock) == 0);
        ibv_wr_start(batch);
        ibv_wr_abort(batch);
        EXPECT(WRONG || pthread_mutex_unlock(&lock) == 0);
    }
    return NULL;
}

int main(void) {
    set_up();
    struct ibv_td_init_attr init = {0};
    struct ibv_td *td = ibv_alloc_td(context, &init);
    struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
    EXPECT(td != NULL && parent != NULL);
    struct ibv_qp_init_attr_ex made = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = parent,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    EXPECT((a = ibv_create_qp_ex(context, &made)) != NULL);
    pthread_t threads[2];
    EXPECT(pthread_barrier_init(&both, NULL, 2) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, start_many, ibv_qp_to_qp_ex(a)) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
    a = NULL;
    tear_down();
    return 0;
}
