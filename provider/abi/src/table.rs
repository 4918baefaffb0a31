//! The operations of a context that are reached through it and not by name.

use std::{ffi::c_int, sync::Arc};

use roce_provider::{Context, OpenError, calls::Call};

use crate::{
    advise, checked,
    command_file::CommandFile,
    context::Ctx,
    counters, cq, cq_ex,
    device::Dev,
    dm, domain,
    errno::{self, Result},
    export::{export, gated},
    faulted, flow,
    hooks::{check, fault},
    layout::{ibv_context, ibv_device, verbs_context},
    modify, mr, mw,
    object::Object,
    port, post, qp_create, srq, xrc,
};

/// Operations that are not set are not supported: the functions of the headers see to that.
fn operations() -> verbs_context {
    let mut verbs = verbs_context::zeroed();
    verbs.query_port = gated!("ibv_query_port", port::query_port);
    verbs.query_device_ex = gated!("ibv_query_device_ex", port::query_device_ex);
    verbs.create_cq_ex = Some(cq_ex::create_cq_ex);
    verbs.modify_cq = gated!("ibv_modify_cq", cq_ex::modify_cq);
    verbs.alloc_td = gated!("ibv_alloc_td", domain::alloc_td);
    verbs.dealloc_td = gated!("ibv_dealloc_td", domain::dealloc_td);
    verbs.alloc_parent_domain = gated!("ibv_alloc_parent_domain", domain::alloc_parent_domain);
    verbs.alloc_dm = gated!("ibv_alloc_dm", dm::alloc_dm);
    verbs.free_dm = gated!("ibv_free_dm", dm::free_dm);
    verbs.reg_dm_mr = gated!("ibv_reg_dm_mr", dm::reg_dm_mr);
    verbs.alloc_null_mr = gated!("ibv_alloc_null_mr", mr::alloc_null_mr);
    verbs.advise_mr = gated!("ibv_advise_mr", advise::advise_mr);
    verbs.create_counters = gated!("ibv_create_counters", counters::create_counters);
    verbs.destroy_counters = gated!("ibv_destroy_counters", counters::destroy_counters);
    verbs.attach_counters_point_flow =
        gated!("ibv_attach_counters_point_flow", counters::attach_counters_point_flow);
    verbs.ibv_create_flow = gated!("ibv_create_flow", flow::create_flow);
    verbs.ibv_destroy_flow = gated!("ibv_destroy_flow", flow::destroy_flow);
    verbs.read_counters = gated!("ibv_read_counters", counters::read_counters);
    verbs.query_rt_values = gated!("ibv_query_rt_values_ex", port::query_rt_values);
    verbs.context.ops.poll_cq = Some(cq::poll_cq);
    verbs.context.ops.req_notify_cq = Some(cq::req_notify_cq);
    verbs.context.ops.post_send = Some(post::post_send);
    verbs.context.ops.post_recv = Some(post::post_recv);
    verbs.context.ops.post_srq_recv = Some(post::post_srq_recv);
    verbs.context.ops.alloc_mw = gated!("ibv_alloc_mw", mw::alloc_mw);
    verbs.context.ops.bind_mw = gated!("ibv_bind_mw", mw::bind_mw);
    verbs.context.ops.dealloc_mw = gated!("ibv_dealloc_mw", mw::dealloc_mw);
    verbs.create_qp_ex = gated!("ibv_create_qp_ex", qp_create::create_qp_ex);
    verbs.open_qp = gated!("ibv_open_qp", qp_create::open_qp);
    verbs.modify_qp_rate_limit = gated!("ibv_modify_qp_rate_limit", modify::modify_qp_rate_limit);
    verbs.create_srq_ex = gated!("ibv_create_srq_ex", srq::create_srq_ex);
    verbs.get_srq_num = gated!("ibv_get_srq_num", srq::get_srq_num);
    verbs.open_xrcd = gated!("ibv_open_xrcd", xrc::open_xrcd);
    verbs.close_xrcd = gated!("ibv_close_xrcd", xrc::close_xrcd);
    if check::is_on() {
        checked::set_operations(&mut verbs);
    }
    if fault::are_possible() {
        faulted::set_operations(&mut verbs);
    }
    verbs
}

/// A context of the device of `command_file`, which has been opened for it. An imported one owns
/// the descriptor that it is imported by.
pub(crate) fn open(
    opened: Result<Context, OpenError>,
    command_file: Arc<CommandFile>,
    imported_by: Option<c_int>,
) -> Result<*mut ibv_context> {
    Ctx::open(opened, operations(), command_file, imported_by)
}

unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let _call = Call::begin();
    errno::pointer(
        "ibv_open_device",
        Dev::trust(device).and_then(|dev| {
            let command_file = CommandFile::new(dev)?;
            open(dev.open_or_down(), command_file, None)
        }),
    )
}

export!(ibv_open_device);
