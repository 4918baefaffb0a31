/* A child that waits forever for an event, and is ended by a signal once its wait is reported. SIGNAL is the number,
   WAITS the wait. With FORKED, the parent has made objects before. */

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define REPAIRED
#include "wrong.h"

static char text[1 << 16];

static void wait_forever(const char *how) {
    set_up();
    with_channel();
    connect_both();
    if (strcmp(how, "poll") == 0) {
        struct pollfd wanted = {.fd = channel->fd, .events = POLLIN};
        poll(&wanted, 1, -1);
        exit(2);
    }
    if (strcmp(how, "solicited") == 0) {
        receive_at(b, 1024, 512);
        receive_at(b, 1536, 512);
        EXPECT(ibv_req_notify_cq(cq, 1) == 0);
        send_one();
    }
    event_comes();
    exit(2);
}

/* Passes on what the child says, and ends the child at this text. */
static void pass_on(int from, pid_t child, const char *at, int number) {
    ssize_t count;
    int is_ended = 0;
    for (size_t length = 0; (count = read(from, text + length, sizeof text - 1 - length)) > 0; length += count) {
        fwrite(text + length, 1, count, stderr);
        text[length + count] = 0;
        if (!is_ended && strstr(text, at) != NULL) {
            EXPECT(kill(child, number) == 0);
            is_ended = 1;
        }
    }
}

int main(void) {
    const char *how = getenv("WAITS");
    int status, number = atoi(getenv("SIGNAL")), is_forked = getenv("FORKED") != NULL, said[2];
    int is_found = strcmp(how, "solicited") != 0;
    if (is_forked)
        EXPECT((context = open_loopback()) != NULL);
    /* a shell's background programs ignore SIGINT */
    EXPECT(signal(number, SIG_DFL) != SIG_ERR && pipe(said) == 0);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && dup2(said[1], STDERR_FILENO) == STDERR_FILENO && close(said[1]) == 0);
        wait_forever(how);
    }
    EXPECT(child > 0 && close(said[1]) == 0);
    if (!is_found) { /* nothing is said before the end */
        sleep(5);
        EXPECT(kill(child, number) == 0);
    }
    pass_on(said[0], child, is_found ? "endless_wait" : "no such text", number);
    EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == number);
    EXPECT(!is_forked || ibv_close_device(context) == 0);
    return 0;
}
