/* finding: fork_not_prepared

   A child is made while memory is registered. */

#include <sys/wait.h>

#include "wrong.h"

int main(void) {
    EXPECT(WRONG || ibv_fork_init() == 0);
    set_up();
    connect_both();
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0)
        _exit(0);
    int status;
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    tear_down();
    return 0;
}
