/* finding: used_after_destroy

   An error path that cleans up, and its caller, too. */

#include "wrong.h"

int main(void) {
    set_up();
    struct ibv_qp *qp = make(IBV_QPT_RC);
    EXPECT(ibv_destroy_qp(qp) == 0 && (!WRONG || ibv_destroy_qp(qp) != 0));
    tear_down();
    return 0;
}
