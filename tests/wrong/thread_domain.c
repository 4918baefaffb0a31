/* finding: used_by_two_threads
   stacks: called, the other thread

   Two threads post to a queue pair of a thread domain; with a lock they may. */

#include <pthread.h>

#include "wrong.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static volatile int ends;

static void *post_many(void *unused) {
    while (!ends) {
        EXPECT(WRONG || pthread_mutex_lock(&lock) == 0);
        struct ibv_sge sge = part(0);
        struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 0}, *bad;
        ibv_post_recv(a, &wr, &bad); /* until it is full */
        EXPECT(WRONG || pthread_mutex_unlock(&lock) == 0);
    }
    return unused;
}

int main(void) {
    set_up();
    struct ibv_td_init_attr init = {0};
    struct ibv_td *td = ibv_alloc_td(context, &init);
    struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
    struct ibv_cq *large = ibv_create_cq(context, 1100, NULL, NULL, 0);
    EXPECT(td != NULL && parent != NULL && large != NULL);
    struct ibv_qp_init_attr made = {.send_cq = large, .recv_cq = large, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1000, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((a = ibv_create_qp(parent, &made)) != NULL && to_init(a, 0) == 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, post_many, NULL) == 0);
    sleep(1);
    ends = 1;
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_cq(large) == 0);
    a = NULL;
    EXPECT(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
    tear_down();
    return 0;
}
