/* fails with: reorder

   Data by one queue pair, a polled flag by another, between two processes. */

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "wrong.h"

/* What the other process has to know. */
struct side {
    uint32_t data, flag, rkey;
    union ibv_gid gid;
};

static int write_to(struct ibv_qp *qp, uint32_t length, int at, uint32_t rkey) {
    struct ibv_sge sge = part(length);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + at; /* the same in a child */
    wr.wr.rdma.rkey = rkey;
    return ibv_post_send(qp, &wr, &bad);
}

/* False if the reader has ended. */
static int write_round(int end, char value, uint32_t rkey) {
    memset(memory, value, 1024);
    EXPECT(write_to(a, 1024, 1024, rkey) == 0);
    if (!WRONG && errors_among(1) != 0) /* the flag when the data is complete */
        return 0;
    EXPECT(write_to(b, 1, 3072, rkey) == 0);
    return errors_among(1 + WRONG) == 0 && read(end, &value, 1) == 1;
}

static void read_round(int end, char value) {
    while (*(volatile char *)(memory + 3072) != value)
        sched_yield();
    for (int i = 0; i < 1024; i++)
        EXPECT(((volatile char *)memory)[1024 + i] == value);
    EXPECT(write(end, &value, 1) == 1);
}

int main(void) {
    int ends[2], status;
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    int end = ends[child == 0];
    EXPECT(close(ends[child != 0]) == 0);
    timeout = 12;
    retries = 7;
    set_up();
    a = make(IBV_QPT_RC);
    b = make(IBV_QPT_RC);
    struct side own = {.data = a->qp_num, .flag = b->qp_num, .rkey = mr->rkey, .gid = gid}, other;
    EXPECT(write(end, &own, sizeof own) == sizeof own && read(end, &other, sizeof other) == sizeof other);
    gid = other.gid;
    EXPECT(to_init(a, 0) == 0 && to_init(b, 0) == 0);
    EXPECT(to_rtr(a, other.data, 0x100, 1) == 0 && to_rtr(b, other.flag, 0x100, 1) == 0);
    EXPECT(to_rts(a, 0x100) == 0 && to_rts(b, 0x100) == 0);
    char ready = 1;
    EXPECT(write(end, &ready, 1) == 1 && read(end, &ready, 1) == 1);
    for (int round = 1; round <= ROUNDS; round++) {
        if (child == 0 && !write_round(end, round, other.rkey))
            _exit(1);
        if (child != 0)
            read_round(end, round);
    }
    if (child != 0)
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
    tear_down();
    if (child == 0)
        _exit(0); /* the parent speaks for both */
    return 0;
}
