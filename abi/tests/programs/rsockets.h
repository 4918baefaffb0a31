/* Of librdmacm's rsockets, whose headers need not be there. */

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

int rsocket(int, int, int), rbind(int, const void *, socklen_t), rlisten(int, int), rconnect(int, const void *, socklen_t);
int raccept(int, void *, socklen_t *), rshutdown(int, int), rclose(int), rpoll(struct pollfd *, nfds_t, int);
int rselect(int, fd_set *, fd_set *, fd_set *, struct timeval *), rfcntl(int, int, ...);
int rgetpeername(int, void *, socklen_t *), rgetsockname(int, void *, socklen_t *);
int rsetsockopt(int, int, int, const void *, socklen_t), rgetsockopt(int, int, int, void *, socklen_t *);
ssize_t rrecv(int, void *, size_t, int), rrecvfrom(int, void *, size_t, int, void *, socklen_t *), rrecvmsg(int, struct msghdr *, int);
ssize_t rsend(int, const void *, size_t, int), rsendto(int, const void *, size_t, int, const void *, socklen_t);
ssize_t rsendmsg(int, const struct msghdr *, int), rread(int, void *, size_t), rwrite(int, const void *, size_t);
ssize_t rreadv(int, const struct iovec *, int), rwritev(int, const struct iovec *, int);
off_t riomap(int, void *, size_t, int, int, off_t);
int riounmap(int, void *, size_t), repoll_create(int), repoll_ctl(int, int, int, struct epoll_event *);
int repoll_wait(int, struct epoll_event *, int, int);
size_t riowrite(int, const void *, size_t, off_t, int);

enum { SOL_RDMA = 0x10000, RDMA_SQSIZE = 0, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE };

static int ready(int fd, short events, int timeout) {
    struct pollfd one = {.fd = fd, .events = events};
    int count = rpoll(&one, 1, timeout);
    EXPECT(count == (one.revents != 0));
    return one.revents;
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    EXPECT(rgetsockopt(fd, level, name, &value, &length) == 0 && length == sizeof value);
    return value;
}

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
