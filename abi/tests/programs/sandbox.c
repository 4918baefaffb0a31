/* A program in a sandbox that refuses a system call, or some uses of one: DENIED names it. Two queue pairs speak with each
   other as ever. */

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "wrong.h"

/* Offset of what the filter looks at: a call's number, or the low half of an argument. */
#define NUMBER offsetof(struct seccomp_data, nr)
#define ARGUMENT(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define ANY (-1)

/* Refuses a call; `argument`, if it is one, must have this value. */
static void refuse(int call, int argument, int value, int error) {
    unsigned where = argument == ANY ? NUMBER : ARGUMENT(argument), what = argument == ANY ? call : value;
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, where),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, what, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

int main(void) {
    const char *denied = getenv("DENIED");
    EXPECT(denied != NULL);
    if (strcmp(denied, "memfd_create") == 0)
        refuse(SYS_memfd_create, ANY, 0, EPERM);
    else if (strcmp(denied, "userfaultfd") == 0)
        refuse(SYS_userfaultfd, ANY, 0, EPERM);
    else if (strcmp(denied, "UDP options") == 0)
        refuse(SYS_setsockopt, 1, 17, ENOPROTOOPT);
    else
        refuse(SYS_socket, 0, AF_INET6, EAFNOSUPPORT);

    set_up();
    connect_both();
    memset(memory, 7, 64);
    for (int i = 0; i < 100; i++) {
        EXPECT(send_with(a, part(64), IBV_WR_RDMA_WRITE, mr->rkey, 0) == 0);
        EXPECT(errors_among(1) == 0);
    }
    EXPECT(memcmp(memory, memory + 2048, 64) == 0);
    EXPECT(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
    EXPECT(ibv_close_device(context) == 0);
    return 0;
}
