/* finding: memory_unmapped

   Data has arrived, so the memory is given back, though the completion is still to come. */

#include <sys/mman.h>

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *other = ibv_reg_mr(pd, pages, 8192, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(pages != MAP_FAILED && other != NULL);
    pages[0] = 1;
    receive_at(b, 1024, 512);
    EXPECT(send_with(a, (struct ibv_sge){(uintptr_t)pages, 64, other->lkey}, IBV_WR_SEND, 0, 0) == 0);
    wait_for_data();
    if (WRONG)
        EXPECT(munmap(pages, 8192) == 0);
    poll_both();
    EXPECT(ibv_dereg_mr(other) == 0 && (WRONG || munmap(pages, 8192) == 0));
    tear_down();
    return 0;
}
