/* finding: receive_written

   The buffer is cleared after it is posted, and not before. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    for (int i = 0; i < 20; i++) {
        receive_at(b, 1024, 512);
        if (WRONG)
            memory[1024]++;
        send_one();
        poll_both();
        memset(memory + 1024, i, 512);
    }
    tear_down();
    return 0;
}
