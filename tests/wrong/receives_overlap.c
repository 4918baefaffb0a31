/* finding: receive_overlap

   Slots of a ring that are one byte too long. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 513 - !WRONG);
    receive_at(a, 1536, 512);
    tear_down();
    return 0;
}
