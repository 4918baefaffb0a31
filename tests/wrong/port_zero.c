/* explained: port_number

   Ports are counted from 1; the structure was zeroed. */

#include "wrong.h"

int main(void) {
    set_up();
    a = make(IBV_QPT_RC);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = !WRONG, .qp_access_flags = rights};
    int done = ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    EXPECT((done != 0) == WRONG);
    tear_down();
    return 0;
}
