/* finding: used_in_child

   A forked child reads a registered buffer of its parent, whose pages ibv_fork_init leaves out of children. */

#include <sys/mman.h>
#include <sys/wait.h>

#include "wrong.h"

int main(void) {
    EXPECT(ibv_fork_init() == 0);
    set_up();
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(pages != MAP_FAILED);
    struct ibv_mr *region = ibv_reg_mr(pd, pages, 8192, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(region != NULL);
    char first = pages[100];
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0)
        _exit(WRONG ? pages[100] : first);
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WRONG ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : status == 0);
    child = fork(); /* after the parent has used the pages */
    if (child == 0)
        _exit(first);
    pages[100] = 7;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(ibv_dereg_mr(region) == 0);
    tear_down();
    if (WRONG)
        _exit(99); /* the child says it */
    return 0;
}
