/* finding: deregistered_key
   stacks: rebound

   The peer has the key that a memory window had before it was bound. */

#include "window.h"

int main(void) {
    set_up();
    connect_both();
    bind_window();
    EXPECT(write_with(WRONG ? key_before : window->rkey) == WRONG);
    EXPECT(ibv_dealloc_mw(window) == 0 && ibv_dereg_mr(region) == 0);
    tear_down();
    return 0;
}
