/* finding: rnr_timer_zero

   min_rnr_timer 0 is taken for "at once"; it is 655 ms. */

#include "wrong.h"

int main(void) {
    set_up();
    rnr_timer = WRONG ? 0 : 12;
    connect_both();
    tear_down();
    return 0;
}
