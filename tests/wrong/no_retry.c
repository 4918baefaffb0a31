/* finding: retry_zero

   retry_cnt 0, so that errors are seen at once: so is every lost packet. */

#include "wrong.h"

int main(void) {
    set_up();
    retries = WRONG ? 0 : 7;
    connect_both();
    tear_down();
    return 0;
}
