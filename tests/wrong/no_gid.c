/* explained: no_gid
   says: set ah_attr.is_global = 1

   An example for InfiniBand, which addresses by LID. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, 0) == 0 && to_rtr(a, a->qp_num, 0x100, !WRONG) == (WRONG ? EINVAL : 0));
    tear_down();
    return 0;
}
