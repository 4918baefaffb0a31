/* What the programs of forked children beside this file share. */

#include <sys/wait.h>

#include "wrong.h"

/* A child uses the objects of its parent, or its own. It says what it has found. */
static inline void in_child(void (*prepare)(void), void (*use)(void)) {
    EXPECT(ibv_fork_init() == 0);
    if (WRONG) {
        set_up();
        prepare();
    }
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        if (!WRONG) {
            set_up();
            prepare();
        }
        use();
        if (!WRONG)
            tear_down();
        exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    _exit(WEXITSTATUS(status));
}
