/* finding: deregistered_key
   stacks: deallocated

   A memory window is deallocated while the peer still has its key. */

#include "window.h"

int main(void) {
    set_up();
    connect_both();
    bind_window();
    uint32_t key = window->rkey;
    if (WRONG)
        EXPECT(ibv_dealloc_mw(window) == 0);
    EXPECT(write_with(key) == WRONG);
    EXPECT((WRONG || ibv_dealloc_mw(window) == 0) && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
