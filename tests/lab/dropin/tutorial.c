/* The program of every tutorial: opens a device, makes the objects, exchanges addresses with the
 * peer by TCP, brings the queue pair to RTS, writes into the peer's memory with immediate data, and
 * checks the bytes that the peer wrote into ours.
 *
 * usage: tutorial DEVICE GID_INDEX [SERVER]
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TCP_PORT 18516
#define LENGTH 65536

/* Address of a side, for its peer. */
struct endpoint {
    uint64_t address;
    uint32_t rkey;
    uint32_t qpn;
    uint32_t psn;
    uint8_t gid[16];
};

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static int connect_tcp(const char *server)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(TCP_PORT) };
    int one = 1, peer, listener = socket(AF_INET, SOCK_STREAM, 0);

    check(listener >= 0, "socket");
    if (server) {
        check(inet_pton(AF_INET, server, &address.sin_addr) == 1, "address");
        check(!connect(listener, (struct sockaddr *)&address, sizeof address), "connect");
        return listener;
    }
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(!bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
    check(!listen(listener, 1), "listen");
    peer = accept(listener, NULL, NULL);
    check(peer >= 0, "accept");
    close(listener);
    return peer;
}

static void exchange(int tcp, const void *mine, void *theirs, size_t length)
{
    check(write(tcp, mine, length) == (ssize_t)length, "write");
    check(recv(tcp, theirs, length, MSG_WAITALL) == (ssize_t)length, "recv");
}

static struct ibv_context *open_device(const char *name)
{
    int number, at;
    struct ibv_context *context = NULL;
    struct ibv_device **list = ibv_get_device_list(&number);

    check(list != NULL, "ibv_get_device_list");
    for (at = 0; at < number; at++)
        if (!strcmp(ibv_get_device_name(list[at]), name))
            context = ibv_open_device(list[at]);
    check(context != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    return context;
}

static void to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

    check(!ibv_modify_qp(qp, &attr, mask), "INIT");
}

static void to_rtr(struct ibv_qp *qp, int gid_index, const struct endpoint *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {
            .is_global = 1, .port_num = 1, .grh = { .sgid_index = gid_index, .hop_limit = 64 },
        },
    };
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

    memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, 16);
    check(!ibv_modify_qp(qp, &attr, mask), "RTR");
}

static void to_rts(struct ibv_qp *qp, uint32_t psn)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS, .sq_psn = psn,
        .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
    };
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC;

    check(!ibv_modify_qp(qp, &attr, mask), "RTS");
}

/* Waits for our write's completion and for the peer's; returns the immediate data. */
static uint32_t take_both(struct ibv_cq *cq)
{
    uint32_t immediate = 0;
    int taken = 0;

    while (taken < 2) {
        struct ibv_wc wc;
        int number = ibv_poll_cq(cq, 1, &wc);

        check(number >= 0, "ibv_poll_cq");
        if (!number)
            continue;
        if (wc.status != IBV_WC_SUCCESS) {
            fprintf(stderr, "request %lu: %s\n", (unsigned long)wc.wr_id,
                    ibv_wc_status_str(wc.status));
            exit(1);
        }
        if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
            check(wc.wc_flags & IBV_WC_WITH_IMM && wc.byte_len == LENGTH, "immediate data");
            immediate = ntohl(wc.imm_data);
        }
        taken++;
    }
    return immediate;
}

static uint8_t byte(uint32_t seed, size_t at)
{
    return seed + at * 7 + at / 251;
}

int main(int argc, char **argv)
{
    const char *server = argc > 3 ? argv[3] : NULL;
    uint32_t seed = server ? 0xC11E : 0x5E4E, peer_seed;
    int gid_index, tcp;
    struct endpoint mine = { .psn = getpid() & 0xffffff }, peer;
    union ibv_gid gid;
    size_t at;
    char go = 'g';

    if (argc < 3) {
        fprintf(stderr, "usage: tutorial DEVICE GID_INDEX [SERVER]\n");
        return 2;
    }
    gid_index = atoi(argv[2]);

    struct ibv_context *context = open_device(argv[1]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    uint8_t *buffer = calloc(2, LENGTH), *incoming = buffer + LENGTH;
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 2 * LENGTH,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    check(mr != NULL, "ibv_reg_mr");
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    check(cq != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    check(qp != NULL, "ibv_create_qp");
    to_init(qp);

    /* The write consumes a receive request, which needs no memory. */
    struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
    check(!ibv_post_recv(qp, &recv, &bad_recv), "ibv_post_recv");

    check(!ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
    memcpy(mine.gid, gid.raw, 16);
    mine.address = (uintptr_t)incoming;
    mine.rkey = mr->rkey;
    mine.qpn = qp->qp_num;
    tcp = connect_tcp(server);
    exchange(tcp, &mine, &peer, sizeof mine);
    to_rtr(qp, gid_index, &peer);
    to_rts(qp, mine.psn);
    exchange(tcp, &go, &go, 1); /* both are ready to receive */

    for (at = 0; at < LENGTH; at++)
        buffer[at] = byte(seed, at);
    struct ibv_sge sge = { .addr = (uintptr_t)buffer, .length = LENGTH, .lkey = mr->lkey };
    struct ibv_send_wr send = {
        .wr_id = 2, .sg_list = &sge, .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
        .imm_data = htonl(seed), .wr.rdma = { .remote_addr = peer.address, .rkey = peer.rkey },
    }, *bad_send;
    check(!ibv_post_send(qp, &send, &bad_send), "ibv_post_send");
    peer_seed = take_both(cq);

    if (peer_seed != (server ? 0x5E4E : 0xC11E)) {
        fprintf(stderr, "the immediate data is %#x\n", peer_seed);
        return 1;
    }
    for (at = 0; at < LENGTH; at++)
        if (incoming[at] != byte(peer_seed, at)) {
            fprintf(stderr, "byte %zu is wrong\n", at);
            return 1;
        }
    printf("the peer wrote %d bytes, all as they should be\n", LENGTH);
    exchange(tcp, &go, &go, 1); /* none ends while the other may repeat its write */

    check(!ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(!ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(!ibv_close_device(context), "ibv_close_device");
    free(buffer);
    return 0;
}
