/* explained: attribute_not_taken

   One mask for all transitions. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights, .timeout = 14};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | (WRONG ? IBV_QP_TIMEOUT : 0);
    EXPECT((ibv_modify_qp(a, &attr, mask) != 0) == WRONG);
    tear_down();
    return 0;
}
