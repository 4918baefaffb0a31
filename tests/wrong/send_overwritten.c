/* finding: send_buffer_overwritten

   One buffer for requests and answers: an answer comes while the request may still be sent again. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, WRONG ? 256 : 1024, 512);
    memory[0] = 1;
    send_one();
    poll_both();
    tear_down();
    return 0;
}
