/* Servers that fork a process for each connection, and their clients, by `RDMAV_FORK_SAFE`. The device has the address of
 * `ROCE_DEVICES`, which many processes share, unless `ROCE_SOCKETS_ONLY` is set: then connections stay with TCP. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

#define CLIENTS 6
#define BYTES 300000

static struct sockaddr_in address;
static int shared;

/* Without the libraries in front. */
static int plain_send(int fd, const void *from, size_t length) {
    return syscall(SYS_sendto, fd, from, length, 0, NULL, 0);
}

static int plain_receive(int fd, void *to, size_t length) { return syscall(SYS_recvfrom, fd, to, length, 0, NULL, NULL); }

/* The connection of TCP ends when an rsocket takes its place. To be asked before what may be the end of the other side. */
static void goes_by_rsocket(int fd, int wanted) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    EXPECT(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
    EXPECT((info.tcpi_state != TCP_ESTABLISHED) == wanted);
}

static void tell(int fd, const char *text) { EXPECT(send(fd, text, strlen(text), 0) == (ssize_t)strlen(text)); }

static void hear(int fd, const char *text) {
    char heard[100];
    EXPECT(recv(fd, heard, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text));
    EXPECT(memcmp(heard, text, strlen(text)) == 0);
}

static void hear_end(int fd) {
    char one;
    EXPECT(read(fd, &one, 1) == 0);
}

/* A side of a conversation, and whether it goes by rsockets. */
typedef void side(int fd);

static void echo(int fd) {
    char bytes[5000];
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) != 0;) {
        goes_by_rsocket(fd, shared);
        for (ssize_t sent = 0; sent < got;) {
            ssize_t some = write(fd, bytes + sent, got - sent);
            EXPECT(some > 0);
            sent += some;
        }
    }
}

static void ask(int fd) {
    static char bytes[BYTES], answer[BYTES];
    for (int i = 0, own = getpid(); i < BYTES; i++)
        bytes[i] = i * 7 + own;
    EXPECT(write(fd, bytes, 1) == 1 && read(fd, answer, 1) == 1);
    goes_by_rsocket(fd, shared);
    for (int done = 0; done < BYTES; done += 10000) {
        EXPECT(write(fd, bytes + done, 10000) == 10000);
        EXPECT(recv(fd, answer + done, 10000, MSG_WAITALL) == 10000);
    }
    EXPECT(memcmp(bytes, answer, BYTES) == 0);
}

static void greet(int fd) {
    tell(fd, "hello");
    goes_by_rsocket(fd, shared);
    hear(fd, "thanks");
}

static void be_greeted(int fd) {
    hear(fd, "hello");
    goes_by_rsocket(fd, shared);
    tell(fd, "thanks");
    hear_end(fd);
}

/* By a second number: standard input and output, as of programs that a server starts. */
static void greet_by_other_numbers(int fd) {
    EXPECT(dup2(fd, 0) == 0 && dup2(fd, 1) == 1 && close(fd) == 0);
    tell(1, "hello");
    goes_by_rsocket(0, shared);
    hear(0, "thanks");
}

/* Nothing is said before the other side waits for it, and nobody waits in a call that moves data. */
static int wait_by_poll(int fd, short events) {
    struct pollfd one = {.fd = fd, .events = events};
    EXPECT(poll(&one, 1, 20000) == 1);
    return one.revents;
}

static void nonblocking(int fd) { EXPECT(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0); }

static void hear_by_poll(int fd, const char *text) {
    char heard[100];
    size_t got = 0;
    while (got < strlen(text)) {
        wait_by_poll(fd, POLLIN);
        ssize_t some = recv(fd, heard + got, strlen(text) - got, 0);
        EXPECT(some > 0 || (some < 0 && errno == EAGAIN));
        got += some > 0 ? some : 0;
    }
    EXPECT(memcmp(heard, text, got) == 0);
}

static void greet_by_poll(int fd) {
    nonblocking(fd);
    EXPECT(wait_by_poll(fd, POLLOUT) & POLLOUT);
    tell(fd, "hello");
    goes_by_rsocket(fd, shared);
    hear_by_poll(fd, "thanks");
}

static void be_greeted_by_poll(int fd) {
    nonblocking(fd);
    hear_by_poll(fd, "hello");
    goes_by_rsocket(fd, shared);
    tell(fd, "thanks");
    wait_by_poll(fd, POLLIN);
    hear_end(fd);
}

static void hear_by_select(int fd, const char *text) {
    char heard[100];
    for (size_t got = 0; got < strlen(text);) {
        struct timeval time = {20, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        EXPECT(select(fd + 1, &set, NULL, NULL, &time) == 1);
        ssize_t some = read(fd, heard + got, 1);
        EXPECT(some > 0 && heard[got] == text[got]);
        got += some;
    }
}

static void answer_by_select(int fd) {
    hear_by_select(fd, "question");
    goes_by_rsocket(fd, shared);
    tell(fd, "answer");
}

static void ask_by_select(int fd) {
    tell(fd, "question");
    goes_by_rsocket(fd, shared);
    hear_by_select(fd, "answer");
}

/* Says one text and hears another, by events. */
static void by_epoll(int fd, const char *say, const char *listen) {
    nonblocking(fd);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 77};
    EXPECT(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    char heard[100];
    size_t got = 0;
    for (int events = 0, said = 0; got < strlen(listen) || !said; events++) {
        EXPECT(events < 10); /* it does not spin */
        EXPECT(epoll_wait(epoll, &event, 1, 20000) == 1 && event.data.u64 == 77);
        if (!said && event.events & EPOLLOUT && send(fd, say, strlen(say), 0) == (ssize_t)strlen(say)) {
            said = 1;
            event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 77};
            EXPECT(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
            continue;
        }
        ssize_t some = said ? recv(fd, heard + got, strlen(listen) - got, 0) : 0;
        got += some > 0 ? some : 0;
    }
    EXPECT(memcmp(heard, listen, got) == 0);
    close(epoll);
}

static void serve_by_epoll(int fd) {
    by_epoll(fd, "answer", "question");
    wait_by_poll(fd, POLLIN);
    hear_end(fd);
}

static void ask_by_epoll(int fd) {
    by_epoll(fd, "question", "answer");
    goes_by_rsocket(fd, shared);
}

/* One side knows nothing of rsockets, and speaks first: that is there before anything could be offered. */
static void answer_tcp(int fd) {
    char one;
    EXPECT(syscall(SYS_recvfrom, fd, &one, 1, MSG_PEEK, NULL, NULL) == 1);
    hear(fd, "question");
    goes_by_rsocket(fd, 0);
    tell(fd, "answer");
}

static void ask_by_tcp(int fd) {
    char answer[6];
    EXPECT(plain_send(fd, "question", 8) == 8);
    EXPECT(plain_receive(fd, answer, 6) == 6 && memcmp(answer, "answer", 6) == 0);
}

static void greet_by_tcp(int fd) {
    char thanks[6];
    EXPECT(plain_send(fd, "hello", 5) == 5);
    EXPECT(plain_receive(fd, thanks, 6) == 6 && memcmp(thanks, "thanks", 6) == 0);
}

static void be_greeted_by_tcp(int fd) {
    hear(fd, "hello");
    goes_by_rsocket(fd, 0);
    tell(fd, "thanks");
}

/* The client has waited in vain for an offer before it spoke, and gets one with the greeting. */
static void greet_late(int fd) {
    struct timespec late = {4, 0};
    nanosleep(&late, NULL);
    greet_by_tcp(fd);
}

static void speak_and_be_greeted(int fd) {
    tell(fd, "thanks");
    goes_by_rsocket(fd, 0);
    hear(fd, "hello");
}

static void offer_late(int fd) {
    unsigned offer = 0;
    struct timespec late = {4, 0};
    nanosleep(&late, NULL);
    EXPECT(plain_send(fd, &offer, 4) == 4);
    greet_by_tcp(fd);
}

/* Who waits for what does not come waits as long as it wants. */
static void be_silent(int fd) { hear_end(fd); }

static void wait_in_vain(int fd) {
    struct timeval limit = {0, 200000};
    char one;
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    EXPECT(recv(fd, &one, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    EXPECT(read(fd, &one, 1) == -1 && errno == EAGAIN);
}

/* A client that has no more to say before it is known what the connection goes by. */
static void answer_half(int fd) {
    hear_end(fd);
    tell(fd, "answer");
}

static void hear_half(int fd) {
    EXPECT(shutdown(fd, SHUT_WR) == 0);
    hear(fd, "answer");
    hear_end(fd);
}

static void succeeded(pid_t child) {
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A process that ends with this one. */
static pid_t start(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

static void serve(int listener, side *server, int count) {
    pid_t children[CLIENTS];
    for (int i = 0; i < count; i++) {
        int fd = accept(listener, NULL, NULL);
        EXPECT(fd >= 0);
        children[i] = start();
        if (children[i] == 0) {
            server(fd);
            exit(0);
        }
        EXPECT(close(fd) == 0);
    }
    for (int i = 0; i < count; i++)
        succeeded(children[i]);
}

static void converse(const char *name, side *server, side *client, int count) {
    pid_t clients[CLIENTS];
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    EXPECT(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    address.sin_port = 0;
    EXPECT(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 20) == 0);
    socklen_t length = sizeof address;
    EXPECT(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    fprintf(stderr, "%s, %d\n", name, count);
    pid_t process = start();
    if (process == 0) {
        serve(listener, server, count);
        exit(0);
    }
    close(listener);
    for (int i = 0; i < count; i++) {
        clients[i] = start();
        if (clients[i] == 0) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            EXPECT(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
            client(fd);
            exit(0);
        }
    }
    for (int i = 0; i < count; i++)
        succeeded(clients[i]);
    succeeded(process);
}

#define CONVERSE(server, client, count) converse(#server ", " #client, server, client, count)

int main(void) {
    const char *devices = getenv("ROCE_DEVICES");
    EXPECT(devices && strncmp(devices, "udp:", 4) == 0);
    address.sin_family = AF_INET;
    EXPECT(inet_pton(AF_INET, devices + 4, &address.sin_addr) == 1);
    shared = !getenv("ROCE_SOCKETS_ONLY");
    CONVERSE(echo, ask, 1);
    CONVERSE(echo, ask, CLIENTS);
    CONVERSE(greet, be_greeted, CLIENTS);
    CONVERSE(greet_by_other_numbers, be_greeted, 2);
    CONVERSE(greet_by_poll, be_greeted_by_poll, 2);
    CONVERSE(answer_by_select, ask_by_select, 2);
    CONVERSE(serve_by_epoll, ask_by_epoll, 2);
    CONVERSE(answer_tcp, ask_by_tcp, 2);
    CONVERSE(greet_by_tcp, be_greeted_by_tcp, 2);
    CONVERSE(greet_late, speak_and_be_greeted, 1);
    CONVERSE(offer_late, speak_and_be_greeted, 1);
    CONVERSE(be_silent, wait_in_vain, 1);
    CONVERSE(answer_half, hear_half, 1);
    return 0;
}
