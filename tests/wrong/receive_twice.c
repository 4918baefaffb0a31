/* finding: receive_overlap

   A loop posts all receives with the same buffer. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    receive_at(b, WRONG ? 1024 : 1536, 512);
    tear_down();
    return 0;
}
