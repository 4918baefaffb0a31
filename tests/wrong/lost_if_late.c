/* fails with: delay

   The message is there, and one of its completions is not yet: it comes while the program works, before the queue
   is armed. In time, the program never waits. */

#include "wrong.h"

/* As many as there are. */
static int take_all(void) {
    struct ibv_wc wc;
    int number = 0;
    while (ibv_poll_cq(cq, 1, &wc) == 1)
        number++;
    return number;
}

int main(void) {
    if (WRONG)
        interrupt_later(3);
    set_up();
    with_channel();
    connect_both();
    for (int round = 1; round <= 20; round++) {
        memory[0] = round;
        receive_at(b, 1024, 512);
        send_one();
        while (*(volatile char *)(memory + 1024) != round)
            ;
        int left = 2 - take_all();
        if (left == 0)
            continue;
        usleep(5000);
        EXPECT(ibv_req_notify_cq(cq, 0) == 0);
        if (!WRONG)
            left -= take_all();
        if (left > 0)
            EXPECT(event_comes());
        EXPECT(errors_among(left) == 0);
    }
    without_channel();
    tear_down();
    return 0;
}
