/* rsockets between two processes: what arrives, and what each call says. The parent is the server, the child the client. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "rsockets.h"

enum { LARGE = 3000000, MAPPED = 20000, PORT = 7800 };

/* The server's address, which no other program has. */
static uint32_t server = INADDR_LOOPBACK + 99;

static struct sockaddr_in at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(server);
    return address;
}

static void set(int fd, int level, int name, int value) { EXPECT(rsetsockopt(fd, level, name, &value, sizeof value) == 0); }

static unsigned char byte_at(size_t place) { return place ^ place >> 8 ^ place >> 16; }

static void send_large(int fd) {
    unsigned char *bytes = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++) bytes[i] = byte_at(i);
    EXPECT((errno = 0, rsend(fd, bytes, LARGE, 0)) == LARGE); /* a socket that waits sends all of it */
    free(bytes);
}

static void receive_large(int fd) {
    unsigned char *bytes = malloc(70000);
    for (size_t got = 0; got < LARGE;) {
        size_t want = 1 + got % 70000;
        errno = 0;
        ssize_t some = rrecv(fd, bytes, want > LARGE - got ? LARGE - got : want, 0);
        EXPECT(some > 0);
        for (ssize_t i = 0; i < some; i++) EXPECT(bytes[i] == byte_at(got + i));
        got += some;
    }
    free(bytes);
}

static void *send_in_thread(void *fd) {
    send_large((int)(intptr_t)fd);
    return NULL;
}

/* Both directions at once, each with a thread of its own on one socket. */
static void both_ways(int fd) {
    pthread_t sender;
    EXPECT(pthread_create(&sender, NULL, send_in_thread, (void *)(intptr_t)fd) == 0);
    receive_large(fd);
    EXPECT(pthread_join(sender, NULL) == 0);
}

/* A message to and fro, after which both are where they were. */
static void meet(int fd) {
    char byte = 'x';
    EXPECT(rwrite(fd, &byte, 1) == 1 && rread(fd, &byte, 1) == 1 && byte == 'x');
}

static void *wait_for_ever(void *fd) {
    char byte;
    rrecv((int)(intptr_t)fd, &byte, 1, 0);
    return "not cancelled";
}


/* Waits by rpoll, rselect and repoll_wait, for an rsocket beside a pipe; the other side sends a byte a while after each meeting. */
static void wait_by_poll(int fd, int pipe) {
    struct pollfd both[2] = {{.fd = pipe, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    EXPECT(rpoll(both, 2, 0) == 0 && both[1].revents == 0);
    EXPECT(rpoll(both, 2, 10000) == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
    EXPECT(ready(fd, POLLOUT, 0) == POLLOUT);
}

static void wait_by_select(int fd, int pipes[2]) {
    fd_set in, out;
    int most = (fd > pipes[1] ? fd : pipes[1]) + 1;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in), FD_SET(pipes[0], &in), FD_SET(pipes[1], &out);
    EXPECT(rselect(most, &in, &out, NULL, NULL) == 1 && FD_ISSET(pipes[1], &out) && !FD_ISSET(fd, &in));
    struct timeval time = {10, 0};
    FD_SET(fd, &in), FD_SET(pipes[0], &in);
    EXPECT(rselect(most, &in, NULL, NULL, &time) == 1 && FD_ISSET(fd, &in) && !FD_ISSET(pipes[0], &in));
    EXPECT(time.tv_sec < 10);
    FD_ZERO(&in);
    FD_SET(pipes[0], &in), time = (struct timeval){0, 1000};
    EXPECT(rselect(most, &in, NULL, NULL, &time) == 0 && !FD_ISSET(pipes[0], &in));
}

static void wait_by_instance(int fd, int pipes[2], uint32_t more) {
    struct epoll_event event = {.events = EPOLLIN | more, .data.u64 = 99}, other = {.events = EPOLLIN, .data.u64 = 7};
    int instance = repoll_create(0);
    char byte = 'p';
    EXPECT(instance >= 0 && repoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
    EXPECT(FAILS(repoll_ctl(instance, EPOLL_CTL_ADD, fd, &event), EEXIST));
    EXPECT(repoll_ctl(instance, EPOLL_CTL_ADD, pipes[0], &other) == 0);
    EXPECT(repoll_wait(instance, &event, 1, 10000) == 1 && event.data.u64 == 99 && event.events == EPOLLIN);
    EXPECT(repoll_wait(instance, &event, 1, 0) == !more); /* by edge, or once: it has been told */
    EXPECT(write(pipes[1], &byte, 1) == 1);
    struct epoll_event all[3];
    EXPECT(repoll_wait(instance, all, 3, 10000) == 1 + !more && all[!more].data.u64 == 7);
    EXPECT(read(pipes[0], &byte, 1) == 1);
    event = (struct epoll_event){.events = EPOLLOUT, .data.u64 = 98};
    EXPECT(repoll_ctl(instance, EPOLL_CTL_MOD, fd, &event) == 0);
    EXPECT(repoll_wait(instance, &event, 1, 10000) == 1 && event.data.u64 == 98 && event.events == EPOLLOUT);
    EXPECT(repoll_ctl(instance, EPOLL_CTL_DEL, fd, NULL) == 0 && FAILS(repoll_ctl(instance, EPOLL_CTL_DEL, fd, NULL), ENOENT));
    EXPECT(repoll_wait(instance, &event, 1, 0) == 0 && rclose(instance) == 0 && FAILS(rclose(instance), EBADF));
}

static void waiting(int fd, int sends) {
    int pipes[2];
    char byte;
    EXPECT(pipe(pipes) == 0);
    for (int kind = 0; kind < 6; kind++) {
        meet(fd);
        if (sends) {
            usleep(20000);
            EXPECT(rsend(fd, "b", 1, 0) == 1 && rread(fd, &byte, 1) == 1 && byte == 'k');
            continue;
        }
        switch (kind) {
        case 0: wait_by_poll(fd, pipes[0]); break;
        case 1: wait_by_select(fd, pipes); break;
        case 2: wait_by_instance(fd, pipes, 0); break;
        case 3: wait_by_instance(fd, pipes, EPOLLET); break;
        case 4: wait_by_instance(fd, pipes, EPOLLONESHOT); break;
        }
        EXPECT(rrecv(fd, &byte, 1, 0) == 1 && byte == 'b' && rwrite(fd, "k", 1) == 1);
    }
    EXPECT(close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

/* A thread that is cancelled while it waits leaves nothing locked. */
static void cancelled(int fd) {
    pthread_t thread;
    void *said;
    for (int i = 0; i < 3; i++) {
        EXPECT(pthread_create(&thread, NULL, wait_for_ever, (void *)(intptr_t)fd) == 0);
        usleep(10000);
        EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &said) == 0 && said == PTHREAD_CANCELED);
    }
}

static void pieces(int fd, int sends) {
    char first[3] = "abc", last[4] = "defg", got[7];
    struct iovec list[2] = {{first, 3}, {last, 4}};
    struct msghdr message = {.msg_iov = list, .msg_iovlen = 2};
    if (sends) {
        EXPECT(rsendmsg(fd, &message, 0) == 7 && rwritev(fd, list, 2) == 7 && rsendto(fd, "hi", 2, 0, NULL, 0) == 2);
        EXPECT(FAILS(rwritev(fd, list, -1), EINVAL) && FAILS(rsend(fd, "x", 1, MSG_OOB), EOPNOTSUPP));
        return;
    }
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    EXPECT(rrecv(fd, got, 7, MSG_WAITALL) == 7 && memcmp(got, "abcdefg", 7) == 0);
    EXPECT(rrecv(fd, got, 1, MSG_PEEK) == 1 && got[0] == 'a');
    memset(first, 0, 3), memset(last, 0, 4);
    while (ready(fd, POLLIN, 1000), rrecv(fd, got, 7, MSG_PEEK) < 7) {}
    EXPECT(rrecvmsg(fd, &message, 0) == 7 && memcmp(first, "abc", 3) == 0 && memcmp(last, "defg", 4) == 0);
    EXPECT(rrecvfrom(fd, got, 1, 0, &peer, &length) == 1 && got[0] == 'h' && peer.sin_family == AF_INET && peer.sin_port != 0);
    list[0].iov_len = 1, list[1].iov_len = 0;
    EXPECT(rreadv(fd, list, 2) == 1 && first[0] == 'i');
}

static void mapping(int fd, unsigned char *memory) {
    char byte = 'm';
    memset(memory, 0, MAPPED);
    EXPECT(riomap(fd, memory, MAPPED, PROT_WRITE, 0, 5000) == 5000);
    EXPECT(FAILS(riomap(fd, memory, MAPPED, PROT_WRITE, 0, 5000), EEXIST) && FAILS(riomap(fd, memory, 1, PROT_EXEC, 0, 0), EINVAL));
    EXPECT(FAILS(riomap(fd, memory, 9, PROT_WRITE, 0, 0), ENOBUFS)); /* the peer has room for one */
    EXPECT(riomap(fd, memory, 9, PROT_NONE, 0, -1) == (off_t)(intptr_t)memory && riounmap(fd, memory, 9) == 0);
    meet(fd);
    unsigned char *bytes = malloc(MAPPED);
    for (size_t i = 0; i < MAPPED; i++) bytes[i] = byte_at(i);
    EXPECT(riowrite(fd, bytes + 10, MAPPED - 10, 5010, 0) == MAPPED - 10 && riowrite(fd, bytes, 10, 5000, 0) == 10);
    EXPECT(FAILS((ssize_t)riowrite(fd, bytes, 1, 4999, 0), EINVAL) && FAILS((ssize_t)riowrite(fd, bytes, 1, 5000 + MAPPED, 0), EINVAL));
    /* a message that is sent behind it says that it is there */
    EXPECT(rwrite(fd, &byte, 1) == 1 && rread(fd, &byte, 1) == 1 && byte == 'm' && memcmp(memory, bytes, MAPPED) == 0);
    EXPECT(riounmap(fd, memory, MAPPED) == 0 && FAILS(riounmap(fd, memory, MAPPED), EINVAL));
    meet(fd);
    EXPECT(FAILS((ssize_t)riowrite(fd, bytes, 1, 5000, 0), EINVAL));
    free(bytes);
}

static void options_of_a_new_one(void) {
    int fd = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP), mine = rsocket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && mine >= 0 && fd != mine);
    EXPECT(FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT) && FAILS(rsocket(AF_INET, SOCK_RAW, 0), ESOCKTNOSUPPORT));
    EXPECT(FAILS(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT));
    EXPECT(option(fd, SOL_SOCKET, SO_RCVBUF) == 131072 && option(fd, SOL_RDMA, RDMA_SQSIZE) == 384);
    EXPECT(option(fd, SOL_RDMA, RDMA_INLINE) == 64 && option(fd, SOL_RDMA, RDMA_IOMAPSIZE) == 0);
    EXPECT(option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && option(mine, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
    int numbers[][3] = {{SOL_SOCKET, SO_SNDBUF, 8192}, {SOL_SOCKET, SO_RCVBUF, 16384}, {SOL_SOCKET, SO_REUSEADDR, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1}, {SOL_SOCKET, SO_OOBINLINE, 1}, {IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 5},
        {IPPROTO_IPV6, IPV6_V6ONLY, 1}, {IPPROTO_IP, IP_TOS, 32}, {SOL_RDMA, RDMA_SQSIZE, 100}, {SOL_RDMA, RDMA_RQSIZE, 200},
        {SOL_RDMA, RDMA_INLINE, 100}, {SOL_RDMA, RDMA_IOMAPSIZE, 3}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        set(fd, numbers[i][0], numbers[i][1], numbers[i][2]);
        EXPECT(option(fd, numbers[i][0], numbers[i][1]) == numbers[i][2]);
    }
    struct linger linger = {1, 7}, found;
    struct timeval time = {3, 500}, time_found;
    socklen_t length = sizeof found;
    EXPECT(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    EXPECT(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &found, &length) == 0 && found.l_onoff == 1 && found.l_linger == 7);
    EXPECT(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0 && (length = sizeof time, 1));
    EXPECT(rgetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time_found, &length) == 0 && time_found.tv_sec == 3 && time_found.tv_usec == 500);
    EXPECT(FAILS(rsetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &length, 4), EOPNOTSUPP) && FAILS(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &length, 3), EINVAL));
    EXPECT(rfcntl(fd, F_GETFL) == O_RDWR && rfcntl(mine, F_GETFL) == (O_RDWR | O_NONBLOCK));
    EXPECT(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0 && rfcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK) && FAILS(rfcntl(fd, F_DUPFD, 0), EINVAL));

    char byte;
    struct sockaddr_in peer;
    length = sizeof peer;
    EXPECT(FAILS(rrecv(fd, &byte, 1, 0), ENOTCONN) && FAILS(rsend(fd, &byte, 1, 0), ENOTCONN) && FAILS(rshutdown(fd, SHUT_WR), ENOTCONN));
    EXPECT(FAILS(rgetpeername(fd, &peer, &length), ENOTCONN) && FAILS(raccept(fd, NULL, NULL), EINVAL) && FAILS(rshutdown(fd, 9), EINVAL));
    EXPECT(FAILS(rbind(fd, NULL, 0), EFAULT) && FAILS(rbind(fd, &peer, 1), EINVAL) && ready(fd, POLLIN | POLLOUT, 0) == (POLLOUT | POLLHUP));
    EXPECT(rclose(fd) == 0 && rclose(mine) == 0 && FAILS(rclose(fd), EBADF) && FAILS(rrecv(fd, &byte, 1, 0), EBADF));
    EXPECT(FAILS(rsend(1, &byte, 1, 0), EBADF) && FAILS(rfcntl(-1, F_GETFL), EBADF) && FAILS(riowrite(0, &byte, 1, 0, 0), EBADF));
}

/* A child has no use of what its parent has. */
static void forked(int fd) {
    pid_t child = fork();
    char byte = 'f';
    int status;
    if (child == 0) {
        EXPECT(FAILS(rsend(fd, &byte, 1, 0), EBADF) && FAILS(rrecv(fd, &byte, 1, 0), EBADF) && rclose(fd) == 0);
        int own = rsocket(AF_INET, SOCK_STREAM, 0);
        EXPECT(own >= 0 && rclose(own) == 0);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static void serve(int tell) {
    int fd = rsocket(AF_INET, SOCK_STREAM, 0), connected;
    unsigned char *memory = malloc(MAPPED);
    struct sockaddr_in own = at(PORT), peer = {0};
    socklen_t length = sizeof peer;
    char bytes[8];
    set(fd, SOL_RDMA, RDMA_IOMAPSIZE, 1);
    while (rbind(fd, &own, sizeof own) == -1) {
        EXPECT(errno == EADDRINUSE && ++server < INADDR_LOOPBACK + 200);
        own = at(PORT);
    }
    EXPECT(rlisten(fd, 8) == 0 && option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1);
    EXPECT(write(tell, &server, sizeof server) == sizeof server);
    int second = rsocket(AF_INET, SOCK_STREAM, 0);
    EXPECT(FAILS(rbind(second, &own, sizeof own), EADDRINUSE) && rclose(second) == 0);
    EXPECT(ready(fd, POLLIN, 10000) == POLLIN && (connected = raccept(fd, &peer, &length)) >= 0);
    EXPECT(length == sizeof peer && peer.sin_family == AF_INET && peer.sin_port != 0);
    EXPECT(option(connected, SOL_RDMA, RDMA_IOMAPSIZE) == 1);
    both_ways(connected);
    pieces(connected, 0), pieces(connected, 1);
    meet(connected);
    waiting(connected, 0), waiting(connected, 1);
    cancelled(connected);
    EXPECT(rwrite(connected, "c", 1) == 1);
    mapping(connected, memory);
    forked(connected);
    meet(connected);
    /* the client sends nothing more, and gets what is sent now */
    EXPECT(rrecv(connected, bytes, 8, 0) == 0 && ready(connected, POLLIN | POLLOUT | POLLRDHUP, 0) == (POLLIN | POLLOUT | POLLRDHUP));
    EXPECT(rsend(connected, "late", 4, 0) == 4 && rclose(connected) == 0);

    /* a client that does not wait */
    EXPECT((connected = raccept(fd, NULL, NULL)) >= 0 && rsend(connected, "unread", 6, 0) == 6);
    receive_large(connected);
    /* it closes with something unread, and bytes that it has sent before arrive */
    EXPECT(rrecv(connected, bytes, 8, MSG_WAITALL) == 4 && memcmp(bytes, "last", 4) == 0);
    EXPECT(ready(connected, POLLIN, 0) == (POLLIN | POLLHUP) && FAILS(rsend(connected, "x", 1, 0), ECONNRESET) && rclose(connected) == 0);

    /* a client that ends without closing */
    EXPECT((connected = raccept(fd, NULL, NULL)) >= 0);
    receive_large(connected);
    EXPECT(rrecv(connected, bytes, 8, 0) == 0 && rclose(connected) == 0);
    EXPECT(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0 && FAILS(raccept(fd, NULL, NULL), EAGAIN) && rclose(fd) == 0);
    free(memory);
}

static void be_client(int hear) {
    EXPECT(read(hear, &server, sizeof server) == sizeof server);
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in peer = at(PORT), found;
    socklen_t length = sizeof found;
    unsigned char *memory = malloc(MAPPED);
    char bytes[8];
    set(fd, SOL_RDMA, RDMA_IOMAPSIZE, 1);
    EXPECT(rconnect(fd, &peer, sizeof peer) == 0 && FAILS(rconnect(fd, &peer, sizeof peer), EISCONN));
    EXPECT(rgetpeername(fd, &found, &length) == 0 && memcmp(&found, &peer, 8) == 0);
    EXPECT(rgetsockname(fd, &found, &length) == 0 && found.sin_family == AF_INET && found.sin_port != 0);
    both_ways(fd);
    pieces(fd, 1), pieces(fd, 0);
    meet(fd);
    waiting(fd, 1), waiting(fd, 0);
    EXPECT(rread(fd, bytes, 1) == 1 && bytes[0] == 'c');
    mapping(fd, memory);
    meet(fd);
    struct timeval time = {0, 20000};
    EXPECT(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0 && FAILS(rrecv(fd, bytes, 1, 0), EAGAIN));
    time.tv_sec = 10;
    EXPECT(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    EXPECT(rshutdown(fd, SHUT_WR) == 0 && FAILS(rsend(fd, "x", 1, 0), EPIPE));
    EXPECT(rrecv(fd, bytes, 8, MSG_WAITALL) == 4 && memcmp(bytes, "late", 4) == 0 && rrecv(fd, bytes, 8, 0) == 0 && rclose(fd) == 0);

    fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    EXPECT(rconnect(fd, &peer, sizeof peer) == 0 || errno == EINPROGRESS);
    EXPECT(ready(fd, POLLOUT, 10000) == POLLOUT && option(fd, SOL_SOCKET, SO_ERROR) == 0);
    EXPECT(ready(fd, POLLIN, 10000) == POLLIN && rrecv(fd, bytes, 3, 0) == 3 && rrecv(fd, bytes, 3, MSG_PEEK) == 3);
    unsigned char byte;
    size_t sent = 0, waited = 0;
    while (sent < LARGE) {
        byte = byte_at(sent);
        ssize_t some = rsend(fd, &byte, 1, 0); /* credits run out long before the buffer does */
        if (some == 1) sent++;
        else EXPECT(errno == EAGAIN && ++waited && ready(fd, POLLOUT, 10000) == POLLOUT);
        if (sent == 2000) break;
    }
    EXPECT(sent == 2000);
    EXPECT(rfcntl(fd, F_SETFL, 0) == 0);
    unsigned char *rest = malloc(LARGE);
    for (size_t i = sent; i < LARGE; i++) rest[i] = byte_at(i);
    EXPECT(rsend(fd, rest + sent, LARGE - sent, 0) == (ssize_t)(LARGE - sent) && rsend(fd, "last", 4, 0) == 4 && rclose(fd) == 0);

    struct sockaddr_in nobody = at(PORT + 1);
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    EXPECT(FAILS(rconnect(fd, &nobody, sizeof nobody), ECONNREFUSED) && rfcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    EXPECT(FAILS(rconnect(fd, &nobody, sizeof nobody), EINPROGRESS) && (ready(fd, POLLOUT, 10000) & (POLLOUT | POLLERR)) == (POLLOUT | POLLERR));
    EXPECT(option(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED && option(fd, SOL_SOCKET, SO_ERROR) == 0);
    EXPECT(rfcntl(fd, F_SETFL, 0) == 0 && rconnect(fd, &peer, sizeof peer) == 0);
    EXPECT(rsend(fd, rest, 0, 0) == 0);
    for (size_t i = 0; i < sent; i++) rest[i] = byte_at(i);
    EXPECT(rsend(fd, rest, LARGE, 0) == LARGE);
    exit(0); /* not closed: what was sent arrives all the same */
}

int main(void) {
    options_of_a_new_one();
    int pipes[2], status;
    EXPECT(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) be_client(pipes[0]);
    serve(pipes[1]);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
