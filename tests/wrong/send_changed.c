/* finding: send_buffer_changed

   ibv_post_send is taken for send(2), which has copied when it returns. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    receive_at(b, 1024, 512);
    send_one();
    if (WRONG)
        memory[300]++;
    poll_both();
    memory[300]++;
    tear_down();
    return 0;
}
