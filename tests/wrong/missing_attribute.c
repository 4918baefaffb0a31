/* explained: missing_attribute
   says: need IBV_QP_PKEY_INDEX (pkey_index)

   A bit of attr_mask is left out, though the member is set. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    EXPECT(to_init(a, WRONG ? IBV_QP_PKEY_INDEX : 0) == (WRONG ? EINVAL : 0));
    tear_down();
    return 0;
}
