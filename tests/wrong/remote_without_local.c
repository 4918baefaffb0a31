/* explained: remote_without_local_write
   says: IBV_ACCESS_LOCAL_WRITE

   Who lets a peer write lets himself write. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_mr *other = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE | (WRONG ? 0 : IBV_ACCESS_LOCAL_WRITE));
    EXPECT((other == NULL) == WRONG && (WRONG || ibv_dereg_mr(other) == 0));
    tear_down();
    return 0;
}
