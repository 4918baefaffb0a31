/* Waits that last for more than two seconds until another thread ends them, which is no mistake. */

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

#include "wrong.h"

enum { LONG = 2500000 };

static int asks[2], answers[2];
static sem_t begun;

static void arm_and_send(void) {
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    receive_at(b, 1024, 512);
    send_one();
}

static void *after_a_while(void *unused) {
    usleep(LONG);
    arm_and_send();
    return unused;
}

/* Another process answers after a while. */
static void *after_an_answer(void *unused) {
    char byte = 0;
    EXPECT(write(asks[1], &byte, 1) == 1 && read(answers[0], &byte, 1) == 1);
    arm_and_send();
    return unused;
}

static pid_t start_process(void) {
    EXPECT(pipe(asks) == 0 && pipe(answers) == 0);
    pid_t process = fork();
    if (process == 0) {
        char byte;
        EXPECT(close(asks[1]) == 0);
        while (read(asks[0], &byte, 1) == 1) {
            usleep(LONG);
            EXPECT(write(answers[1], &byte, 1) == 1);
        }
        _exit(0);
    }
    EXPECT(process > 0);
    return process;
}

static void wait_in_call(void) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, after_a_while, NULL) == 0);
    EXPECT(event_comes() && pthread_join(thread, NULL) == 0);
    poll_both();
}

static void wait_in_poll(void) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, after_an_answer, NULL) == 0);
    struct pollfd wanted = {.fd = channel->fd, .events = POLLIN};
    EXPECT(poll(&wanted, 1, -1) == 1 && event_comes() && pthread_join(thread, NULL) == 0);
    poll_both();
}

static void *end_late(void *batch) {
    ibv_wr_start(batch);
    EXPECT(sem_post(&begun) == 0);
    usleep(LONG);
    ibv_wr_abort(batch);
    return NULL;
}

static void wait_for_batch(void) {
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND};
    struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
    EXPECT(qp != NULL && sem_init(&begun, 0, 0) == 0);
    struct ibv_qp_ex *batch = ibv_qp_to_qp_ex(qp);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, end_late, batch) == 0 && sem_wait(&begun) == 0);
    ibv_wr_start(batch);
    ibv_wr_abort(batch);
    EXPECT(pthread_join(thread, NULL) == 0 && ibv_destroy_qp(qp) == 0);
}

int main(void) {
    pid_t process = start_process();
    set_up();
    with_channel();
    connect_both();
    wait_in_call();
    wait_in_poll();
    wait_for_batch();
    without_channel();
    tear_down();
    int status;
    EXPECT(close(asks[1]) == 0 && waitpid(process, &status, 0) == process && status == 0);
    return 0;
}
