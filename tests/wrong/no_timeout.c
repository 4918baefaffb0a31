/* finding: timeout_zero

   A structure of attributes that is zeroed, and of which some members are filled in. */

#include "wrong.h"

int main(void) {
    set_up();
    timeout = WRONG ? 0 : 14;
    connect_both();
    tear_down();
    return 0;
}
