/* Times that are none, of calls that wait for a listener which has an rsocket. */

#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int listener;

static fd_set wanted(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(listener, &set);
    return set;
}

static int by_select(long seconds, long microseconds) {
    struct timeval time = {seconds, microseconds};
    fd_set set = wanted();
    int ready = select(listener + 1, &set, NULL, NULL, &time);
    EXPECT(ready != -1 || FD_ISSET(listener, &set)); /* the sets of a call that fails are as they were */
    return ready;
}

static int by_pselect(long seconds, long nanoseconds) {
    struct timespec time = {seconds, nanoseconds};
    fd_set set = wanted();
    return pselect(listener + 1, &set, NULL, NULL, &time, NULL);
}

static int by_ppoll(long seconds, long nanoseconds) {
    struct timespec time = {seconds, nanoseconds};
    struct pollfd one = {.fd = listener, .events = POLLIN};
    return ppoll(&one, 1, &time, NULL);
}

int main(void) {
    struct sockaddr_in own = {.sin_family = AF_INET};
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(bind(listener, (void *)&own, sizeof own) == 0 && listen(listener, 5) == 0);
    EXPECT(FAILS(by_select(-1, 0), EINVAL) && FAILS(by_select(0, -1), EINVAL) && FAILS(by_select(-5, 4), EINVAL));
    EXPECT(FAILS(by_pselect(-1, 0), EINVAL) && FAILS(by_pselect(0, -1), EINVAL) && FAILS(by_pselect(0, 1000000000), EINVAL));
    EXPECT(FAILS(by_ppoll(-1, 0), EINVAL) && FAILS(by_ppoll(0, -1), EINVAL) && FAILS(by_ppoll(0, 1000000000), EINVAL));
    EXPECT(by_select(0, 0) == 0 && by_select(0, 1) == 0 && by_select(0, 1000001) == 0);
    EXPECT(by_pselect(0, 1) == 0 && by_ppoll(0, 1) == 0);
    EXPECT(close(listener) == 0);
    return 0;
}
