/* finding: bad_wr_null

   A pointer for the failed request is left out, which no adapter needs until a post fails. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    EXPECT(ibv_post_recv(b, &wr, WRONG ? NULL : &bad) == 0);
    tear_down();
    return 0;
}
