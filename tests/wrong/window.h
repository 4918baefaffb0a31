/* What the programs of memory windows beside this file share: a bound window of 64 bytes, and the peer's WRITE. */

#include "wrong.h"

static char bytes[64];
static struct ibv_mr *region;
static struct ibv_mw *window;
static uint32_t key_before;

static inline void bind_window(void) {
    region = ibv_reg_mr(pd, bytes, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    EXPECT(region != NULL && window != NULL);
    key_before = window->rkey;
    struct ibv_mw_bind bind = {.wr_id = 1, .bind_info = {.mr = region, .addr = (uintptr_t)bytes, .length = 64,
        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
    EXPECT(ibv_bind_mw(b, window, &bind) == 0 && errors_among(1) == 0);
}

/* 1 if the WRITE fails. */
static inline int write_with(uint32_t key) {
    struct ibv_sge sge = part(64);
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)bytes;
    wr.wr.rdma.rkey = key;
    EXPECT(ibv_post_send(a, &wr, &bad) == 0);
    return errors_among(1);
}
