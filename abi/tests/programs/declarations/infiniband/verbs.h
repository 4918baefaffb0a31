/* Declarations of libibverbs for the programs beside this directory, on machines without its headers. Names, and the layout that a test
   compares with the record of rdma-core's; the numbers (numbers.h) are written from that record. Functions that programs reach
   through a context are found by their distance in front of it, which is recorded, too. */

#ifndef ROCE_TEST_VERBS_H
#define ROCE_TEST_VERBS_H

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/numbers.h>

/* Programs name these types; their values come from the record. */
enum ibv_qp_type { ROCE_TEST_QP_TYPE };
typedef void (*unused)(void);

union ibv_gid {
    uint8_t raw[16];
    struct {
        uint64_t subnet_prefix, interface_id;
    } global;
};

struct ibv_cq;
struct ibv_device;
struct ibv_mw_bind;
struct ibv_qp;
struct ibv_qp_ex;
struct ibv_cq_ex;
struct ibv_recv_wr;
struct ibv_send_wr;
struct ibv_srq;
struct ibv_wc;

struct ibv_mw;
struct ibv_pd;
struct ibv_context;

struct ibv_context_ops {
    unused _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd, _compat_reg_mr, _compat_rereg_mr,
        _compat_dereg_mr;
    struct ibv_mw *(*alloc_mw)(struct ibv_pd *, unsigned);
    int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
    int (*dealloc_mw)(struct ibv_mw *);
    unused _compat_create_cq;
    int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
    int (*req_notify_cq)(struct ibv_cq *, int);
    unused _compat_cq_event, _compat_resize_cq, _compat_destroy_cq, _compat_create_srq, _compat_modify_srq, _compat_query_srq,
        _compat_destroy_srq;
    int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
    unused _compat_create_qp, _compat_query_qp, _compat_modify_qp, _compat_destroy_qp;
    int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
    int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
    unused _compat_create_ah, _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast, _compat_async_event;
};

struct ibv_context {
    struct ibv_device *device;
    struct ibv_context_ops ops;
    int cmd_fd, async_fd, num_comp_vectors;
    pthread_mutex_t mutex;
    void *abi_compat;
};

struct ibv_comp_channel {
    struct ibv_context *context;
    int fd, refcnt;
};

struct ibv_cq {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    void *cq_context;
    uint32_t handle;
    int cqe;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t comp_events_completed, async_events_completed;
};

struct ibv_device_attr {
    char fw_ver[64];
    uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
    uint32_t vendor_id, vendor_part_id, hw_ver;
    int max_qp, max_qp_wr;
    unsigned device_cap_flags;
    int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
    int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
    unsigned atomic_cap;
    int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
    int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
    int max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct ibv_async_event {
    union {
        struct ibv_qp *qp;
        int port_num;
    } element;
    unsigned event_type;
};

struct ibv_pd {
    struct ibv_context *context;
    uint32_t handle;
};

struct ibv_mr {
    struct ibv_context *context;
    struct ibv_pd *pd;
    void *addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};

struct ibv_mw {
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t rkey, handle, type;
};

struct ibv_mw_bind_info {
    struct ibv_mr *mr;
    uint64_t addr, length;
    unsigned mw_access_flags;
};

struct ibv_mw_bind {
    uint64_t wr_id;
    unsigned send_flags;
    struct ibv_mw_bind_info bind_info;
};

struct ibv_xrcd {
    struct ibv_context *context;
};

struct ibv_xrcd_init_attr {
    uint32_t comp_mask;
    int fd, oflags;
};

struct ibv_global_route {
    union ibv_gid dgid;
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
};

struct ibv_grh {
    uint32_t version_tclass_flow;
    uint16_t paylen;
    uint8_t next_hdr, hop_limit;
    union ibv_gid sgid, dgid;
};

struct ibv_ah_attr {
    struct ibv_global_route grh;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_ah {
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t handle;
};

struct ibv_srq {
    struct ibv_context *context;
    void *srq_context;
    struct ibv_pd *pd;
    uint32_t handle;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};

struct ibv_srq_attr {
    uint32_t max_wr, max_sge, srq_limit;
};

struct ibv_alloc_dm_attr {
    size_t length;
    uint32_t log_align_req, comp_mask;
};

struct ibv_srq_init_attr {
    void *srq_context;
    struct ibv_srq_attr attr;
};

struct ibv_tm_cap {
    uint32_t max_num_tags, max_ops;
};

struct ibv_srq_init_attr_ex {
    void *srq_context;
    struct ibv_srq_attr attr;
    uint32_t comp_mask;
    unsigned srq_type;
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd;
    struct ibv_cq *cq;
    struct ibv_tm_cap tm_cap;
};

struct ibv_qp_cap {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
    void *qp_context;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp_cap cap;
    enum ibv_qp_type qp_type;
    int sq_sig_all;
};

struct ibv_rx_hash_conf {
    uint8_t rx_hash_function, rx_hash_key_len, *rx_hash_key;
    uint64_t rx_hash_fields_mask;
};

struct ibv_qp_init_attr_ex {
    void *qp_context;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp_cap cap;
    enum ibv_qp_type qp_type;
    int sq_sig_all;
    uint32_t comp_mask;
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd;
    uint32_t create_flags;
    uint16_t max_tso_header;
    void *rwq_ind_tbl;
    struct ibv_rx_hash_conf rx_hash_conf;
    uint32_t source_qpn;
    uint64_t send_ops_flags;
};

struct ibv_qp_open_attr {
    uint32_t comp_mask, qp_num;
    struct ibv_xrcd *xrcd;
    void *qp_context;
    enum ibv_qp_type qp_type;
};

struct ibv_qp_attr {
    unsigned qp_state, cur_qp_state, path_mtu, path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
    unsigned qp_access_flags;
    struct ibv_qp_cap cap;
    struct ibv_ah_attr ah_attr, alt_ah_attr;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt,
        rnr_retry, alt_port_num, alt_timeout;
    uint32_t rate_limit;
};

struct ibv_qp_rate_limit_attr {
    uint32_t rate_limit, max_burst_sz;
    uint16_t typical_pkt_sz;
    uint32_t comp_mask;
};

struct ibv_sge {
    uint64_t addr;
    uint32_t length, lkey;
};

struct ibv_data_buf {
    void *addr;
    size_t length;
};

struct ibv_recv_wr {
    uint64_t wr_id;
    struct ibv_recv_wr *next;
    struct ibv_sge *sg_list;
    int num_sge;
};

struct ibv_send_wr {
    uint64_t wr_id;
    struct ibv_send_wr *next;
    struct ibv_sge *sg_list;
    int num_sge;
    unsigned opcode, send_flags;
    uint32_t imm_data;
    union {
        struct {
            uint64_t remote_addr;
            uint32_t rkey;
        } rdma;
        struct {
            uint64_t remote_addr, compare_add, swap;
            uint32_t rkey;
        } atomic;
        struct {
            struct ibv_ah *ah;
            uint32_t remote_qpn, remote_qkey;
        } ud;
    } wr;
    struct {
        uint32_t remote_srqn;
    } qp_type;
    struct {
        struct ibv_mw *mw;
        uint32_t rkey;
        struct ibv_mw_bind_info bind_info;
    } bind_mw;
};

struct ibv_wc {
    uint64_t wr_id;
    unsigned status, opcode;
    uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
    unsigned wc_flags;
    uint16_t pkey_index, slid;
    uint8_t sl, dlid_path_bits;
};

struct ibv_qp {
    struct ibv_context *context;
    void *qp_context;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    uint32_t handle, qp_num;
    unsigned state;
    enum ibv_qp_type qp_type;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};

struct ibv_cq_init_attr_ex {
    uint32_t cqe;
    void *cq_context;
    struct ibv_comp_channel *channel;
    uint32_t comp_vector;
    uint64_t wc_flags;
    uint32_t comp_mask, flags;
    struct ibv_pd *parent_domain;
};

struct ibv_poll_cq_attr {
    uint32_t comp_mask;
};

struct ibv_cq_ex {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    void *cq_context;
    uint32_t handle;
    int cqe;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t comp_events_completed, async_events_completed, comp_mask;
    unsigned status;
    uint64_t wr_id;
    int (*start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
    int (*next_poll)(struct ibv_cq_ex *);
    void (*end_poll)(struct ibv_cq_ex *);
    int (*read_opcode)(struct ibv_cq_ex *);
    uint32_t (*read_vendor_err)(struct ibv_cq_ex *);
    uint32_t (*read_byte_len)(struct ibv_cq_ex *);
    uint32_t (*read_imm_data)(struct ibv_cq_ex *);
    uint32_t (*read_qp_num)(struct ibv_cq_ex *);
    uint32_t (*read_src_qp)(struct ibv_cq_ex *);
    unsigned (*read_wc_flags)(struct ibv_cq_ex *);
    uint32_t (*read_slid)(struct ibv_cq_ex *);
    uint8_t (*read_sl)(struct ibv_cq_ex *);
    uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *);
    uint64_t (*read_completion_ts)(struct ibv_cq_ex *);
    uint16_t (*read_cvlan)(struct ibv_cq_ex *);
    uint32_t (*read_flow_tag)(struct ibv_cq_ex *);
    void (*read_tm_info)(struct ibv_cq_ex *, void *);
    uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *);
};

struct ibv_qp_ex {
    struct ibv_qp qp_base;
    uint64_t comp_mask, wr_id;
    unsigned wr_flags;
    unused wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write;
    void (*wr_rdma_write_imm)(struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t);
    void (*wr_send)(struct ibv_qp_ex *);
    unused wr_send_imm, wr_send_inv, wr_send_tso;
    void (*wr_set_ud_addr)(struct ibv_qp_ex *, struct ibv_ah *, uint32_t, uint32_t);
    unused wr_set_xrc_srqn;
    void (*wr_set_inline_data)(struct ibv_qp_ex *, void *, size_t);
    void (*wr_set_inline_data_list)(struct ibv_qp_ex *, size_t, const struct ibv_data_buf *);
    void (*wr_set_sge)(struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t);
    unused wr_set_sge_list;
    void (*wr_start)(struct ibv_qp_ex *);
    int (*wr_complete)(struct ibv_qp_ex *);
    void (*wr_abort)(struct ibv_qp_ex *);
    unused wr_atomic_write;
};

struct ibv_device **ibv_get_device_list(int *);
void ibv_free_device_list(struct ibv_device **);
const char *ibv_get_device_name(struct ibv_device *);
struct ibv_context *ibv_open_device(struct ibv_device *);
int ibv_close_device(struct ibv_context *);
int ibv_query_device(struct ibv_context *, struct ibv_device_attr *);
int ibv_query_gid(struct ibv_context *, uint8_t, int, union ibv_gid *);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
int ibv_dealloc_pd(struct ibv_pd *);
int ibv_fork_init(void);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
int ibv_rereg_mr(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
int ibv_dereg_mr(struct ibv_mr *);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
int ibv_destroy_comp_channel(struct ibv_comp_channel *);
int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
int ibv_get_async_event(struct ibv_context *, struct ibv_async_event *);
void ibv_ack_async_event(struct ibv_async_event *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
int ibv_resize_cq(struct ibv_cq *, int);
void ibv_ack_cq_events(struct ibv_cq *, unsigned);
int ibv_destroy_cq(struct ibv_cq *);
struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
int ibv_modify_srq(struct ibv_srq *, struct ibv_srq_attr *, int);
int ibv_query_srq(struct ibv_srq *, struct ibv_srq_attr *);
int ibv_destroy_srq(struct ibv_srq *);
struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int ibv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
int ibv_destroy_qp(struct ibv_qp *);
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *);
struct ibv_ah *ibv_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *, struct ibv_wc *, struct ibv_grh *, uint8_t);
int ibv_init_ah_from_wc(struct ibv_context *, uint8_t, struct ibv_wc *, struct ibv_grh *, struct ibv_ah_attr *);
int ibv_destroy_ah(struct ibv_ah *);
int ibv_attach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t);
int ibv_detach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t);

static inline int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only) {
    return (*(struct ibv_context **)cq)->ops.req_notify_cq(cq, solicited_only);
}

static inline int ibv_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wcs) {
    return (*(struct ibv_context **)cq)->ops.poll_cq(cq, count, wcs);
}

static inline int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    return qp->context->ops.post_send(qp, wr, bad);
}

static inline int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return qp->context->ops.post_recv(qp, wr, bad);
}

static inline struct ibv_mw *ibv_alloc_mw(struct ibv_pd *pd, unsigned type) {
    return pd->context->ops.alloc_mw(pd, type);
}

static inline int ibv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
    return qp->context->ops.bind_mw(qp, mw, bind);
}

static inline int ibv_dealloc_mw(struct ibv_mw *mw) {
    return mw->context->ops.dealloc_mw(mw);
}

/* The low eight bits of a key are the program's. */
static inline uint32_t ibv_inc_rkey(uint32_t rkey) {
    return (rkey & ~0xFFu) | ((rkey + 1) & 0xFFu);
}

/* The pointer to a function so far in front of a context. */
#define IN_FRONT(context, distance) ((void *)((char *)(context) - (distance)))

static inline struct ibv_cq_ex *ibv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr) {
    typedef struct ibv_cq_ex *operation(struct ibv_context *, struct ibv_cq_init_attr_ex *);
    return (*(operation **)IN_FRONT(context, DISTANCE_create_cq_ex))(context, attr);
}

static inline struct ibv_dm *ibv_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr) {
    typedef struct ibv_dm *operation(struct ibv_context *, struct ibv_alloc_dm_attr *);
    return (*(operation **)IN_FRONT(context, DISTANCE_alloc_dm))(context, attr);
}

static inline int ibv_free_dm(struct ibv_dm *dm) {
    typedef int operation(struct ibv_dm *);
    return (*(operation **)IN_FRONT(*(struct ibv_context **)dm, DISTANCE_free_dm))(dm);
}

static inline struct ibv_qp *ibv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr) {
    typedef struct ibv_qp *operation(struct ibv_context *, struct ibv_qp_init_attr_ex *);
    return (*(operation **)IN_FRONT(context, DISTANCE_create_qp_ex))(context, attr);
}

static inline struct ibv_qp *ibv_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr) {
    typedef struct ibv_qp *operation(struct ibv_context *, struct ibv_qp_open_attr *);
    return (*(operation **)IN_FRONT(context, DISTANCE_open_qp))(context, attr);
}

static inline int ibv_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr) {
    typedef int operation(struct ibv_qp *, struct ibv_qp_rate_limit_attr *);
    return (*(operation **)IN_FRONT(qp->context, DISTANCE_modify_qp_rate_limit))(qp, attr);
}

static inline struct ibv_srq *ibv_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr) {
    typedef struct ibv_srq *operation(struct ibv_context *, struct ibv_srq_init_attr_ex *);
    return (*(operation **)IN_FRONT(context, DISTANCE_create_srq_ex))(context, attr);
}

static inline int ibv_get_srq_num(struct ibv_srq *srq, uint32_t *number) {
    typedef int operation(struct ibv_srq *, uint32_t *);
    return (*(operation **)IN_FRONT(*(struct ibv_context **)srq, DISTANCE_get_srq_num))(srq, number);
}

static inline struct ibv_xrcd *ibv_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr) {
    typedef struct ibv_xrcd *operation(struct ibv_context *, struct ibv_xrcd_init_attr *);
    return (*(operation **)IN_FRONT(context, DISTANCE_open_xrcd))(context, attr);
}

static inline int ibv_close_xrcd(struct ibv_xrcd *xrcd) {
    typedef int operation(struct ibv_xrcd *);
    return (*(operation **)IN_FRONT(xrcd->context, DISTANCE_close_xrcd))(xrcd);
}

struct ibv_td {
    struct ibv_context *context;
};

struct ibv_td_init_attr {
    uint32_t comp_mask;
};

struct ibv_parent_domain_init_attr {
    struct ibv_pd *pd;
    struct ibv_td *td;
    uint32_t comp_mask;
    void *(*alloc)(struct ibv_pd *, void *, size_t, size_t, uint64_t);
    void (*free)(struct ibv_pd *, void *, void *, uint64_t);
    void *pd_context;
};

static inline struct ibv_td *ibv_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr) {
    typedef struct ibv_td *operation(struct ibv_context *, struct ibv_td_init_attr *);
    return (*(operation **)IN_FRONT(context, DISTANCE_alloc_td))(context, attr);
}

static inline int ibv_dealloc_td(struct ibv_td *td) {
    typedef int operation(struct ibv_td *);
    return (*(operation **)IN_FRONT(td->context, DISTANCE_dealloc_td))(td);
}

static inline struct ibv_pd *ibv_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr) {
    typedef struct ibv_pd *operation(struct ibv_context *, struct ibv_parent_domain_init_attr *);
    return (*(operation **)IN_FRONT(context, DISTANCE_alloc_parent_domain))(context, attr);
}

static inline struct ibv_cq *ibv_cq_ex_to_cq(struct ibv_cq_ex *cq) {
    return (struct ibv_cq *)cq;
}

static inline int ibv_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) {
    return cq->start_poll(cq, attr);
}

static inline void ibv_end_poll(struct ibv_cq_ex *cq) {
    cq->end_poll(cq);
}

static inline uint32_t ibv_wc_read_byte_len(struct ibv_cq_ex *cq) {
    return cq->read_byte_len(cq);
}

static inline void ibv_wr_start(struct ibv_qp_ex *qp) {
    qp->wr_start(qp);
}

static inline int ibv_wr_complete(struct ibv_qp_ex *qp) {
    return qp->wr_complete(qp);
}

static inline void ibv_wr_abort(struct ibv_qp_ex *qp) {
    qp->wr_abort(qp);
}

static inline void ibv_wr_send(struct ibv_qp_ex *qp) {
    qp->wr_send(qp);
}

static inline void ibv_wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint32_t immediate) {
    qp->wr_rdma_write_imm(qp, rkey, address, immediate);
}

static inline void ibv_wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey) {
    qp->wr_set_ud_addr(qp, ah, qpn, qkey);
}

static inline void ibv_wr_set_inline_data(struct ibv_qp_ex *qp, void *bytes, size_t length) {
    qp->wr_set_inline_data(qp, bytes, length);
}

static inline void ibv_wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *pieces) {
    qp->wr_set_inline_data_list(qp, count, pieces);
}

static inline void ibv_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length) {
    qp->wr_set_sge(qp, lkey, address, length);
}

#endif
