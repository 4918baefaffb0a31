/* explained: object_in_use
   says: queue pairs before their completion queues

   Destroyed in the order in which it was made. */

#include "wrong.h"

int main(void) {
    set_up();
    connect_both();
    if (WRONG)
        EXPECT(ibv_destroy_cq(cq) == EBUSY);
    tear_down();
    return 0;
}
