/* finding: receive_written

   The rest of a receive buffer, behind the message, is used for something else. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 1024);
    send_one();
    if (WRONG)
        memory[2000]++;
    poll_both();
    memory[2000]++;
    tear_down();
    return 0;
}
