/* finding: used_in_child

   A forked child sends with the queue pair of its parent. */

#include <sys/wait.h>

#include "wrong.h"

static int send_and_poll(void) {
    struct ibv_wc wc;
    for (int i = 0; send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0 && i < 10; i++)
        if (ibv_poll_cq(cq, 1, &wc) != 0)
            return wc.status != IBV_WC_SUCCESS;
    return 1;
}

int main(void) {
    EXPECT(ibv_fork_init() == 0);
    if (WRONG) {
        set_up();
        connect_both();
    }
    pid_t child = fork();
    if (child == 0) {
        if (!WRONG) {
            set_up();
            connect_both();
            EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0 && errors_among(1) == 0);
            tear_down();
        } else {
            send_and_poll();
        }
        exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    _exit(WEXITSTATUS(status)); /* the child says it */
}
