/* A program that ends by a signal while it waits, as one that is past its time, with a mistake and objects that are
   alive. */

#include <sys/wait.h>

#define REPAIRED
#include "wrong.h"

int main(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        set_up();
        timeout = 0;
        connect_both();
        kill(getpid(), SIGTERM);
        for (;;)
            pause();
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    return 0;
}
