/* Datagram rsockets: what arrives, and what each call says. The parent is the server, which answers; the child is the client. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "rsockets.h"

enum { COUNT = 300 };

/* An address that most likely no other program has; both processes are told of it. */
static uint32_t own_ip;

/* That address, with a port that is free. */
static struct sockaddr_in own(int fd) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(own_ip);
    EXPECT(rbind(fd, &address, sizeof address) == 0 && rgetsockname(fd, &address, &length) == 0);
    EXPECT(length == sizeof address && address.sin_port != 0 && address.sin_addr.s_addr == htonl(own_ip));
    return address;
}

static void errors(void) {
    int fd = rsocket(AF_INET, SOCK_DGRAM, IPPROTO_UDP), other = rsocket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = own(fd), none = at;
    socklen_t length = sizeof none;
    char byte = 'x';
    none.sin_port = 0;
    EXPECT(fd >= 0 && other >= 0 && FAILS(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), EPROTONOSUPPORT));
    EXPECT(option(fd, SOL_SOCKET, SO_TYPE) == SOCK_DGRAM && option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_UDP);
    EXPECT(option(other, SOL_SOCKET, SO_DOMAIN) == AF_INET6 && option(fd, SOL_RDMA, RDMA_RQSIZE) == 384);
    int one = 1;
    EXPECT(FAILS(rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), EOPNOTSUPP));
    EXPECT(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 && option(fd, SOL_SOCKET, SO_REUSEADDR) == 1);
    EXPECT(rsetsockopt(other, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0 && option(other, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
    EXPECT(rsetsockopt(fd, IPPROTO_IP, IP_TOS, &one, sizeof one) == 0 && option(fd, IPPROTO_IP, IP_TOS) == 1);
    EXPECT(FAILS(rbind(fd, &at, sizeof at), EINVAL) && FAILS(rbind(rsocket(AF_INET, SOCK_DGRAM, 0), &at, sizeof at), EADDRINUSE));
    EXPECT(FAILS(rlisten(fd, 1), EOPNOTSUPP) && FAILS(raccept(fd, NULL, NULL), EOPNOTSUPP) && FAILS(rshutdown(fd, SHUT_WR), ENOTCONN));
    EXPECT(FAILS(rgetpeername(fd, &none, &length), ENOTCONN) && FAILS((int)riomap(fd, &byte, 1, 0, 0, 0), EOPNOTSUPP));
    EXPECT(FAILS(rsend(fd, &byte, 1, 0), EDESTADDRREQ) && FAILS(rsendto(fd, &byte, 1, 0, &none, sizeof none), EINVAL));
    EXPECT(FAILS(rsendto(fd, &byte, 1, 0, &at, 1), EINVAL) && FAILS(rsendto(fd, &byte, 1, MSG_OOB, &at, sizeof at), EOPNOTSUPP));
    EXPECT(FAILS(rsendto(fd, &byte, 100000, 0, &at, sizeof at), EMSGSIZE));
    EXPECT(FAILS(rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN) && FAILS(rrecv(other, &byte, 1, 0), EAGAIN));
    EXPECT(ready(fd, POLLIN | POLLOUT, 0) == POLLOUT);
    struct timeval time = {0, 20000};
    EXPECT(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0 && FAILS(rrecv(fd, &byte, 1, 0), EAGAIN));
    EXPECT(rclose(fd) == 0 && rclose(other) == 0 && FAILS(rrecv(fd, &byte, 1, 0), EBADF));
}

static void *wait_for_ever(void *fd) {
    char byte;
    rrecv((int)(intptr_t)fd, &byte, 1, 0);
    return "not cancelled";
}

static void cancelled(int fd) {
    pthread_t thread;
    void *said;
    EXPECT(pthread_create(&thread, NULL, wait_for_ever, (void *)(intptr_t)fd) == 0);
    usleep(10000);
    EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &said) == 0 && said == PTHREAD_CANCELED);
}

static void forked(int fd) {
    int status;
    char byte;
    pid_t child = fork();
    if (child == 0) {
        EXPECT(FAILS(rsend(fd, "x", 1, 0), EBADF) && FAILS(rrecv(fd, &byte, 1, 0), EBADF) && rclose(fd) == 0);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

/* Answers each datagram with the same, until one says that it is the last. */
static void serve(int fd) {
    char bytes[5000];
    struct sockaddr_in from;
    struct iovec pieces[2] = {{bytes, 3}, {bytes + 3, sizeof bytes - 3}};
    for (;;) {
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = pieces, .msg_iovlen = 2};
        ssize_t length = rrecvmsg(fd, &message, 0);
        EXPECT(length >= 0 && message.msg_namelen == sizeof from && from.sin_family == AF_INET && message.msg_flags == 0);
        if (length == 4 && memcmp(bytes, "last", 4) == 0) return;
        pieces[1].iov_len = length > 3 ? length - 3 : 0;
        pieces[0].iov_len = length > 3 ? 3 : length;
        EXPECT(rsendmsg(fd, &message, 0) == length);
        pieces[0].iov_len = 3, pieces[1].iov_len = sizeof bytes - 3;
    }
}

/* A question and its answer, which may be lost on the way: it is asked again. */
static void ask(int fd, const struct sockaddr_in *to, size_t length, int seed) {
    unsigned char bytes[5000], got[5000];
    struct sockaddr_in from;
    for (size_t i = 0; i < length; i++) bytes[i] = i * 7 + seed;
    int patience = getenv("ROCE_FAULT") ? 100 : 5000;
    for (int attempt = 0; attempt < 100; attempt++) {
        EXPECT(rsendto(fd, bytes, length, 0, to, to ? sizeof *to : 0) == (ssize_t)length);
        while (ready(fd, POLLIN, patience) == POLLIN) {
            socklen_t size = sizeof from;
            ssize_t some = rrecvfrom(fd, got, sizeof got, 0, &from, &size);
            EXPECT(some >= 0 && (!to || size == sizeof from));
            if (some == (ssize_t)length && memcmp(bytes, got, length) == 0) {
                EXPECT(!to || (from.sin_port == to->sin_port && from.sin_addr.s_addr == to->sin_addr.s_addr));
                return;
            }
        }
    }
    EXPECT(!"answered");
}

static void be_client(int told) {
    struct sockaddr_in to, found;
    socklen_t size = sizeof found;
    EXPECT(read(told, &to, sizeof to) == sizeof to);
    for (int family = 0; family < 2; family++) { /* an address of IPv4, also from a socket for IPv6 */
        int fd = rsocket(family ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
        if (family) {
            struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = to.sin_port}, from;
            mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
            memcpy(&mapped.sin6_addr.s6_addr[12], &to.sin_addr, 4);
            size = sizeof from;
            EXPECT(rsendto(fd, "six", 3, 0, &mapped, sizeof mapped) == 3);
            if (ready(fd, POLLIN, 5000) == POLLIN) {
                char three[3];
                EXPECT(rrecvfrom(fd, three, 3, 0, &from, &size) == 3 && size == sizeof from);
                EXPECT(memcmp(&from.sin6_addr, &mapped.sin6_addr, 16) == 0 && from.sin6_port == to.sin_port);
            }
        }
        if (!family)
            for (int i = 0; i < COUNT; i++) ask(fd, &to, (size_t)i * 13 % 1000, i);
        EXPECT(rconnect(fd, &to, sizeof to) == 0);
        size = sizeof found;
        EXPECT(family || (rgetpeername(fd, &found, &size) == 0 && found.sin_port == to.sin_port));
        EXPECT(family || (rgetsockname(fd, &found, &size) == 0 && found.sin_port != 0 && found.sin_addr.s_addr != 0));
        ask(fd, NULL, 0, 1), ask(fd, NULL, 4000, 2);

        char bytes[8];
        while (ready(fd, POLLIN, 200) == POLLIN) rread(fd, bytes, 8); /* answers to what was asked twice */
        struct iovec piece = {bytes, 2};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        do EXPECT(rwrite(fd, "peeked", 6) == 6);
        while (ready(fd, POLLIN, 500) != POLLIN);
        EXPECT(rrecv(fd, bytes, 8, MSG_PEEK) == 6 && rrecv(fd, bytes, 2, MSG_PEEK | MSG_TRUNC) == 6 && memcmp(bytes, "peeked", 6) == 0);
        EXPECT(rrecvmsg(fd, &message, 0) == 2 && message.msg_flags == MSG_TRUNC && memcmp(bytes, "pe", 2) == 0);
        while (ready(fd, POLLIN, 100) == POLLIN) EXPECT(rread(fd, bytes, 8) == 6);
        int pipes[2];
        EXPECT(pipe(pipes) == 0);
        struct pollfd both[2] = {{.fd = pipes[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
        EXPECT(rpoll(both, 2, 10) == 0 && write(pipes[1], "x", 1) == 1 && rpoll(both, 2, 10) == 1 && both[0].revents == POLLIN);
        EXPECT(close(pipes[0]) == 0 && close(pipes[1]) == 0);
        cancelled(fd);
        forked(fd);
        ask(fd, NULL, 100, 3);
        EXPECT(rshutdown(fd, SHUT_RDWR) == 0 && FAILS(rsend(fd, "x", 1, 0), EPIPE));
        ssize_t late;
        do late = rrecv(fd, bytes, 8, 0);
        while (late > 0);
        EXPECT(late == 0 && rclose(fd) == 0);
    }
    int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
    EXPECT(rsendto(fd, "last", 4, 0, &to, sizeof to) == 4); /* through UDP, where faults are not */
    EXPECT(rclose(fd) == 0);
    exit(0);
}

/* A peer that speaks the protocol by hand: what stands in front of data, and the answer that tells the queue pair. */
static void on_the_wire(void) {
    int fd = rsocket(AF_INET, SOCK_DGRAM, 0), plain = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = own(fd), mine = {.sin_family = AF_INET}, from;
    socklen_t size = sizeof mine;
    mine.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 98);
    struct timeval time = {20, 0};
    EXPECT(setsockopt(plain, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    EXPECT(bind(plain, (void *)&mine, sizeof mine) == 0 && getsockname(plain, (void *)&mine, &size) == 0);
    unsigned char message[20] = {0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0x12, 0x34, 0x56, 0}, got[100];
    memcpy(message + 12, &at.sin_addr, 4), memcpy(message + 16, "data", 4);
    EXPECT(sendto(plain, message, 20, 0, (void *)&at, sizeof at) == 20);
    EXPECT(rrecvfrom(fd, got, sizeof got, 0, &from, &size) == 4 && memcmp(got, "data", 4) == 0);
    EXPECT(from.sin_port == mine.sin_port && from.sin_addr.s_addr == mine.sin_addr.s_addr);
    EXPECT(recvfrom(plain, got, sizeof got, 0, (void *)&from, &size) == 16 && from.sin_port == at.sin_port);
    unsigned char answer[16] = {0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0};
    memcpy(answer + 8, got + 8, 3), memcpy(answer + 12, &mine.sin_addr, 4);
    EXPECT(memcmp(got, answer, 16) == 0 && (got[8] | got[9] | got[10]) != 0);
    EXPECT(rclose(fd) == 0 && close(plain) == 0);
}

int main(void) {
    own_ip = INADDR_LOOPBACK + 149 + getpid() % 100;
    errors();
    on_the_wire();
    int pipes[2], status, fd = rsocket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = own(fd);
    EXPECT(rclose(fd) == 0 && pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) be_client(pipes[0]);
    fd = rsocket(AF_INET, SOCK_DGRAM, 0);
    EXPECT(rbind(fd, &at, sizeof at) == 0 && write(pipes[1], &at, sizeof at) == sizeof at);
    serve(fd);
    EXPECT(waitpid(child, &status, 0) == child && status == 0 && rclose(fd) == 0);
    return 0;
}
