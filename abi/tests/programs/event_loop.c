/* Two processes that wait as the example in the manual page of ibv_get_cq_event does: the descriptor does not block, and whenever
 * it is readable there must be an event. One asks the other, and writes to its memory in between, which completes nothing there. */

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 1000, BYTES = 64 };

static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char memory[2 * BYTES];

/* What each tells the other. */
struct place {
    union ibv_gid gid;
    uint32_t qpn, rkey;
    uint64_t address;
};

static struct place exchange(int other) {
    struct place own = {.qpn = qp->qp_num, .rkey = mr->rkey, .address = (uintptr_t)memory}, theirs;
    EXPECT(ibv_query_gid(qp->context, 1, 0, &own.gid) == 0);
    EXPECT(write(other, &own, sizeof own) == sizeof own);
    EXPECT(recv(other, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
    return theirs;
}

static void post(int opcode, struct place peer) {
    struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    send.wr.rdma.remote_addr = peer.address + BYTES;
    send.wr.rdma.rkey = peer.rkey;
    EXPECT(ibv_post_send(qp, &send, &bad) == 0);
}

static void post_receive(void) {
    struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad;
    EXPECT(ibv_post_recv(qp, &receive, &bad) == 0);
}

/* Waits until a message has come. */
static void wait_for_message(void) {
    for (;;) {
        struct ibv_wc wc;
        for (int count; (count = ibv_poll_cq(cq, 1, &wc)) != 0;) {
            EXPECT(count == 1 && wc.status == IBV_WC_SUCCESS);
            if (wc.opcode == IBV_WC_RECV)
                return;
        }
        struct pollfd one = {.fd = channel->fd, .events = POLLIN};
        EXPECT(poll(&one, 1, 20000) == 1);
        struct ibv_cq *taken;
        void *context;
        EXPECT(ibv_get_cq_event(channel, &taken, &context) == 0);
        EXPECT(taken == cq);
        ibv_ack_cq_events(cq, 1);
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
    }
}

static void run(int other, int asks) {
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    EXPECT(pd && channel);
    EXPECT(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    cq = ibv_create_cq(context, 64, NULL, channel, 0);
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 16, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    qp = ibv_create_qp(pd, &attr);
    EXPECT(cq && mr && qp && ibv_req_notify_cq(cq, 0) == 0);
    struct place peer = exchange(other);
    connect_with(qp, peer.gid, peer.qpn);
    post_receive();
    exchange(other);
    for (int round = 0; round < ROUNDS; round++) {
        if (asks) {
            for (int i = 0; i < round % 3; i++)
                post(IBV_WR_RDMA_WRITE, peer);
            post(IBV_WR_SEND, peer);
        }
        wait_for_message();
        post_receive();
        if (!asks)
            post(IBV_WR_SEND, peer);
    }
    exchange(other); /* what is asked last is answered before anyone ends */
}

int main(void) {
    int pair[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        close(pair[0]);
        run(pair[1], 0);
        exit(0);
    }
    close(pair[1]);
    run(pair[0], 1);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
