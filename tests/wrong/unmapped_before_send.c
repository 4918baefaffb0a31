/* finding: memory_unmapped

   The memory of a region is given back, and sent from later. */

#include <sys/mman.h>

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *other = ibv_reg_mr(pd, pages, 8192, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(pages != MAP_FAILED && other != NULL);
    receive_at(b, 1024, 512);
    if (WRONG)
        EXPECT(munmap(pages, 8192) == 0);
    EXPECT(send_with(a, (struct ibv_sge){(uintptr_t)pages, 64, other->lkey}, IBV_WR_SEND, 0, 0) == 0);
    EXPECT(errors_among(WRONG ? 1 : 2) == WRONG);
    EXPECT(ibv_dereg_mr(other) == 0 && (WRONG || munmap(pages, 8192) == 0));
    tear_down();
    return 0;
}
