/* finding: batch_not_ended
   stacks: called, started

   A thread leaves its batch open and waits for something else, while another one waits for the batch. */

#include <pthread.h>
#include <semaphore.h>

#include "wrong.h"

static sem_t begun, never;

static void *leave_open(void *batch) {
    ibv_wr_start(batch);
    if (!WRONG)
        ibv_wr_abort(batch);
    EXPECT(sem_post(&begun) == 0);
    if (WRONG) {
        EXPECT(sem_wait(&never) == -1 && errno == EINTR);
        ibv_wr_abort(batch);
    }
    return NULL;
}

int main(void) {
    if (WRONG)
        interrupt_later(4);
    set_up();
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    EXPECT((a = ibv_create_qp_ex(context, &attr)) != NULL);
    struct ibv_qp_ex *batch = ibv_qp_to_qp_ex(a);
    EXPECT(sem_init(&begun, 0, 0) == 0 && sem_init(&never, 0, 0) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, leave_open, batch) == 0);
    sigset_t signals; /* the other thread takes it */
    EXPECT(sigemptyset(&signals) == 0 && sigaddset(&signals, SIGUSR1) == 0);
    EXPECT(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0 && sem_wait(&begun) == 0);
    ibv_wr_start(batch);
    ibv_wr_abort(batch);
    EXPECT(pthread_join(thread, NULL) == 0);
    tear_down();
    return 0;
}
