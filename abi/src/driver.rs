//! Driver symbols of libibverbs. Programs load driver libraries without their devices, so every
//! symbol and version must exist. All commands fail.

use crate::{
    export::{export_private, symbol},
    prelude::*,
};

extern "C" fn refuse() -> c_int {
    libc::EOPNOTSUPP
}

extern "C" fn make_nothing() -> *mut c_void {
    call::fail("ibv_make_nothing", &Errno::of(Rule::NotSupported));
    std::ptr::null_mut()
}

extern "C" fn ignore() {}

extern "C" fn ibv_read_ibdev_sysfs_file() -> c_int {
    -1
}

macro_rules! export_as {
    ($function:ident since $release:tt: $($name:ident,)*) => {
        $(use $function as $name;)*
        export_private!($release: $($name,)*);
    };
    ($function:ident: $($name:ident,)*) => {
        $(use $function as $name;)*
        export!($($name,)*);
    };
}

export_as! { refuse since 34:
    execute_ioctl, ibv_cmd_advise_mr, ibv_cmd_alloc_dm, ibv_cmd_alloc_mw, ibv_cmd_alloc_pd,
    ibv_cmd_attach_mcast, ibv_cmd_close_xrcd, ibv_cmd_create_ah, ibv_cmd_create_counters,
    ibv_cmd_create_cq, ibv_cmd_create_cq_ex, ibv_cmd_create_cq_ex2, ibv_cmd_create_flow,
    ibv_cmd_create_flow_action_esp, ibv_cmd_create_qp, ibv_cmd_create_qp_ex, ibv_cmd_create_qp_ex2,
    ibv_cmd_create_rwq_ind_table, ibv_cmd_create_srq, ibv_cmd_create_srq_ex, ibv_cmd_create_wq,
    ibv_cmd_dealloc_mw, ibv_cmd_dealloc_pd, ibv_cmd_dereg_mr, ibv_cmd_destroy_ah,
    ibv_cmd_destroy_counters, ibv_cmd_destroy_cq, ibv_cmd_destroy_flow, ibv_cmd_destroy_flow_action,
    ibv_cmd_destroy_qp, ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_srq, ibv_cmd_destroy_wq,
    ibv_cmd_detach_mcast, ibv_cmd_free_dm, ibv_cmd_get_context, ibv_cmd_modify_cq,
    ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_qp, ibv_cmd_modify_qp_ex, ibv_cmd_modify_srq,
    ibv_cmd_modify_wq, ibv_cmd_open_qp, ibv_cmd_open_xrcd, ibv_cmd_poll_cq, ibv_cmd_post_recv,
    ibv_cmd_post_send, ibv_cmd_post_srq_recv, ibv_cmd_query_context, ibv_cmd_query_device_any,
    ibv_cmd_query_mr, ibv_cmd_query_port, ibv_cmd_query_qp, ibv_cmd_query_srq,
    ibv_cmd_read_counters, ibv_cmd_reg_dm_mr, ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_mr,
    ibv_cmd_req_notify_cq, ibv_cmd_rereg_mr, ibv_cmd_resize_cq, verbs_init_cq,
}
export_as! { refuse since 59:
    ibv_cmd_alloc_dmah, ibv_cmd_export_dmabuf_fd, ibv_cmd_free_dmah, ibv_cmd_query_port_speed,
    ibv_cmd_reg_mr_ex,
}
export_as! { refuse since 65:
    ibv_cmd_create_comp_cntr, ibv_cmd_destroy_comp_cntr, ibv_cmd_inc_comp_cntr,
    ibv_cmd_inc_err_comp_cntr, ibv_cmd_qp_attach_comp_cntr, ibv_cmd_query_comp_cntr_caps,
    ibv_cmd_read_comp_cntr, ibv_cmd_read_err_comp_cntr, ibv_cmd_set_comp_cntr,
    ibv_cmd_set_err_comp_cntr,
}
export_as! { make_nothing since 34:
    _verbs_init_and_alloc_context, verbs_open_device,
}
export_as! { make_nothing since 64:
    ibv_dmabuf_heap_alloc, ibv_dmabuf_heap_cc_shared_init,
}
export_as! { ignore since 34:
    __ioctl_final_num_attrs, __verbs_log, verbs_set_ops, verbs_uninit_context,
}
export_as! { ignore since 64:
    ibv_dmabuf_heap_destroy, ibv_dmabuf_heap_free,
}
export_private!(34: ibv_read_ibdev_sysfs_file);

// a version each
export_as! { ignore:
    verbs_register_driver_34, verbs_register_driver_57, verbs_register_driver_59,
    verbs_register_driver_64, verbs_register_driver_65,
}

// read by drivers: objects of a removed device can be destroyed
core::arch::global_asm!(
    ".pushsection .data.roce_exports,\"aw\",%progbits",
    symbol!(verbs_allow_disassociate_destroy "object" "@@" 65),
    symbol!(verbs_allow_disassociate_destroy "object" "@" 64),
    symbol!(verbs_allow_disassociate_destroy "object" "@" 59),
    symbol!(verbs_allow_disassociate_destroy "object" "@" 57),
    symbol!(verbs_allow_disassociate_destroy "object" "@" 34),
    ".byte 0",
    ".popsection",
);
