//! `infiniband/verbs.h`, version 65. Older programs see the same offsets; `ibv_context` ends a
//! structure that grows at its start.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::{
    attr::*,
    declare::{Unused, layouts},
};

/// A function of C, or null.
macro_rules! op {
    ($($function:tt)*) => {
        Option<unsafe extern "C" $($function)*>
    };
}

layouts! {
    struct ibv_dm {
        context: *mut ibv_context,
        memcpy_to_dm: op!(fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int),
        memcpy_from_dm: op!(fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int),
        comp_mask: u32,
        handle: u32,
    }

    struct ibv_mw_bind_info {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }

    struct ibv_pd {
        context: *mut ibv_context,
        handle: u32,
    }

    struct ibv_td {
        context: *mut ibv_context,
    }

    struct ibv_xrcd {
        context: *mut ibv_context,
    }

    struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    struct ibv_mr_init_attr {
        length: usize,
        access: c_int,
        comp_mask: u64,
        iova: u64,
        addr: *mut c_void,
        fd: c_int,
        fd_offset: u64,
        dmah: *mut c_void,
        buf: *mut c_void,
    }

    struct ibv_mw {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        r#type: c_uint,
    }

    struct ibv_srq_init_attr_ex {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: c_uint,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }

    struct ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: c_uint,
        sq_sig_all: c_int,
    }

    struct ibv_qp_init_attr_ex {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: c_uint,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: ibv_rx_hash_conf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    struct ibv_qp_open_attr {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut ibv_xrcd,
        qp_context: *mut c_void,
        qp_type: c_uint,
    }

    struct ibv_mw_bind {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: ibv_mw_bind_info,
    }

    struct ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: c_uint,
        qp_type: c_uint,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_qp_ex {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: op!(fn(*mut ibv_qp_ex, u32, u64, u64, u64)),
        wr_atomic_fetch_add: op!(fn(*mut ibv_qp_ex, u32, u64, u64)),
        wr_bind_mw: op!(fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)),
        wr_local_inv: op!(fn(*mut ibv_qp_ex, u32)),
        wr_rdma_read: op!(fn(*mut ibv_qp_ex, u32, u64)),
        wr_rdma_write: op!(fn(*mut ibv_qp_ex, u32, u64)),
        wr_rdma_write_imm: op!(fn(*mut ibv_qp_ex, u32, u64, u32)),
        wr_send: op!(fn(*mut ibv_qp_ex)),
        wr_send_imm: op!(fn(*mut ibv_qp_ex, u32)),
        wr_send_inv: op!(fn(*mut ibv_qp_ex, u32)),
        wr_send_tso: op!(fn(*mut ibv_qp_ex, *mut c_void, u16, u16)),
        wr_set_ud_addr: op!(fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)),
        wr_set_xrc_srqn: op!(fn(*mut ibv_qp_ex, u32)),
        wr_set_inline_data: op!(fn(*mut ibv_qp_ex, *mut c_void, usize)),
        wr_set_inline_data_list: op!(fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)),
        wr_set_sge: op!(fn(*mut ibv_qp_ex, u32, u64, u32)),
        wr_set_sge_list: op!(fn(*mut ibv_qp_ex, usize, *const ibv_sge)),
        wr_start: op!(fn(*mut ibv_qp_ex)),
        wr_complete: op!(fn(*mut ibv_qp_ex) -> c_int),
        wr_abort: op!(fn(*mut ibv_qp_ex)),
        wr_atomic_write: op!(fn(*mut ibv_qp_ex, u32, u64, *const c_void)),
        // since 46
        wr_flush: op!(fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8)),
    }

    struct ibv_comp_channel {
        context: *mut ibv_context,
        fd: c_int,
        refcnt: c_int,
    }

    struct ibv_cq {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    struct ibv_cq_ex {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_uint,
        wr_id: u64,
        start_poll: op!(fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int),
        next_poll: op!(fn(*mut ibv_cq_ex) -> c_int),
        end_poll: op!(fn(*mut ibv_cq_ex)),
        read_opcode: op!(fn(*mut ibv_cq_ex) -> c_uint),
        read_vendor_err: op!(fn(*mut ibv_cq_ex) -> u32),
        read_byte_len: op!(fn(*mut ibv_cq_ex) -> u32),
        read_imm_data: op!(fn(*mut ibv_cq_ex) -> u32),
        read_qp_num: op!(fn(*mut ibv_cq_ex) -> u32),
        read_src_qp: op!(fn(*mut ibv_cq_ex) -> u32),
        read_wc_flags: op!(fn(*mut ibv_cq_ex) -> c_uint),
        read_slid: op!(fn(*mut ibv_cq_ex) -> u32),
        read_sl: op!(fn(*mut ibv_cq_ex) -> u8),
        read_dlid_path_bits: op!(fn(*mut ibv_cq_ex) -> u8),
        read_completion_ts: op!(fn(*mut ibv_cq_ex) -> u64),
        read_cvlan: op!(fn(*mut ibv_cq_ex) -> u16),
        read_flow_tag: op!(fn(*mut ibv_cq_ex) -> u32),
        read_tm_info: op!(fn(*mut ibv_cq_ex, *mut ibv_wc_tm_info)),
        read_completion_wallclock_ns: op!(fn(*mut ibv_cq_ex) -> u64),
    }

    struct ibv_ah {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }

    struct ibv_device {
        _ops: [Unused; 2],
        node_type: c_uint,
        transport_type: c_uint,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    struct ibv_context_ops {
        _compat_query_device: Unused,
        _compat_query_port: Unused,
        _compat_alloc_pd: Unused,
        _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused,
        _compat_dereg_mr: Unused,
        alloc_mw: op!(fn(*mut ibv_pd, c_uint) -> *mut ibv_mw),
        bind_mw: op!(fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int),
        dealloc_mw: op!(fn(*mut ibv_mw) -> c_int),
        _compat_create_cq: Unused,
        poll_cq: op!(fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int),
        req_notify_cq: op!(fn(*mut ibv_cq, c_int) -> c_int),
        _compat_cq_event: Unused,
        _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused,
        _compat_create_srq: Unused,
        _compat_modify_srq: Unused,
        _compat_query_srq: Unused,
        _compat_destroy_srq: Unused,
        post_srq_recv: op!(fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int),
        _compat_create_qp: Unused,
        _compat_query_qp: Unused,
        _compat_modify_qp: Unused,
        _compat_destroy_qp: Unused,
        post_send: op!(fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int),
        post_recv: op!(fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int),
        _compat_create_ah: Unused,
        _compat_destroy_ah: Unused,
        _compat_attach_mcast: Unused,
        _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }

    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    struct ibv_cq_init_attr_ex {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }

    struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: op!(fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void),
        free: op!(fn(*mut ibv_pd, *mut c_void, *mut c_void, u64)),
        pd_context: *mut c_void,
    }

    struct ibv_counters {
        context: *mut ibv_context,
    }

    struct ibv_comp_cntr {
        context: *mut ibv_context,
        handle: u32,
    }

    struct verbs_context {
        // reached by name only
        free_buf: Unused,
        alloc_buf: Unused,
        dm_export_dmabuf_fd: Unused,
        reg_mr_ex: Unused,
        dealloc_dmah: Unused,
        alloc_dmah: Unused,
        query_port: op!(fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int),
        advise_mr: op!(fn(*mut ibv_pd, c_uint, u32, *mut ibv_sge, u32) -> c_int),
        alloc_null_mr: op!(fn(*mut ibv_pd) -> *mut ibv_mr),
        read_counters: op!(fn(*mut ibv_counters, *mut u64, u32, u32) -> c_int),
        attach_counters_point_flow:
            op!(fn(*mut ibv_counters, *mut ibv_counter_attach_attr, *mut c_void) -> c_int),
        create_counters:
            op!(fn(*mut ibv_context, *mut ibv_counters_init_attr) -> *mut ibv_counters),
        destroy_counters: op!(fn(*mut ibv_counters) -> c_int),
        reg_dm_mr: op!(fn(*mut ibv_pd, *mut ibv_dm, u64, usize, c_uint) -> *mut ibv_mr),
        alloc_dm: op!(fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm),
        free_dm: op!(fn(*mut ibv_dm) -> c_int),
        modify_flow_action_esp: Unused,
        destroy_flow_action: Unused,
        create_flow_action_esp: Unused,
        modify_qp_rate_limit: op!(fn(*mut ibv_qp, *mut ibv_qp_rate_limit_attr) -> c_int),
        alloc_parent_domain:
            op!(fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd),
        dealloc_td: op!(fn(*mut ibv_td) -> c_int),
        alloc_td: op!(fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td),
        modify_cq: op!(fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int),
        post_srq_ops: Unused,
        destroy_rwq_ind_table: Unused,
        create_rwq_ind_table: Unused,
        destroy_wq: Unused,
        modify_wq: Unused,
        create_wq: Unused,
        query_rt_values: op!(fn(*mut ibv_context, *mut ibv_values_ex) -> c_int),
        create_cq_ex: op!(fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex),
        r#priv: *mut c_void,
        query_device_ex: op!(
            fn(
                *mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex, usize
            ) -> c_int
        ),
        ibv_destroy_flow: op!(fn(*mut c_void) -> c_int),
        ABI_placeholder2: Unused,
        ibv_create_flow: op!(fn(*mut ibv_qp, *mut c_void) -> *mut c_void),
        ABI_placeholder1: Unused,
        open_qp: op!(fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp),
        create_qp_ex: op!(fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp),
        get_srq_num: op!(fn(*mut ibv_srq, *mut u32) -> c_int),
        create_srq_ex: op!(fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq),
        open_xrcd: op!(fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd),
        close_xrcd: op!(fn(*mut ibv_xrcd) -> c_int),
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }

    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: c_uint,
        send_flags: c_uint,
        // network byte order; or the key
        imm_data: u32,
        wr: WrUnion,
        qp_type: XrcPart,
        bind_mw: BindPart,
    }

    struct ibv_async_event {
        element: Element,
        event_type: c_uint,
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union WrUnion {
    pub(crate) rdma: RdmaPart,
    pub(crate) atomic: AtomicPart,
    pub(crate) ud: UdPart,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RdmaPart {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AtomicPart {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UdPart {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct XrcPart {
    pub(crate) remote_srqn: u32,
}

/// The other union member, for segmentation offload, is unused.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BindPart {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Element {
    pub(crate) cq: *mut ibv_cq,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) port_num: c_int,
}
