//! Operations reached through a context.

use std::sync::Arc;

use roce_provider::{Context, OpenError};

use super::{
    advise, command_file::CommandFile, context::Ctx, counters, cq, cq_ex, device::Dev, dm, domain,
    flow, modify, mr, mw, port, post, qp_create, srq, xrc,
};
use crate::prelude::*;

/// Unset operations are unsupported, by the headers.
fn operations() -> verbs_context {
    let mut verbs = verbs_context::zeroed();
    verbs.query_port = Some(port::query_port);
    verbs.query_device_ex = Some(port::ibv_query_device_ex);
    verbs.create_cq_ex = Some(cq_ex::ibv_create_cq_ex);
    verbs.modify_cq = Some(cq_ex::ibv_modify_cq);
    verbs.alloc_td = Some(domain::ibv_alloc_td);
    verbs.dealloc_td = Some(domain::ibv_dealloc_td);
    verbs.alloc_parent_domain = Some(domain::ibv_alloc_parent_domain);
    verbs.alloc_dm = Some(dm::ibv_alloc_dm);
    verbs.free_dm = Some(dm::ibv_free_dm);
    verbs.reg_dm_mr = Some(dm::ibv_reg_dm_mr);
    verbs.alloc_null_mr = Some(mr::ibv_alloc_null_mr);
    verbs.advise_mr = Some(advise::ibv_advise_mr);
    verbs.create_counters = Some(counters::ibv_create_counters);
    verbs.destroy_counters = Some(counters::ibv_destroy_counters);
    verbs.attach_counters_point_flow = Some(counters::ibv_attach_counters_point_flow);
    verbs.ibv_create_flow = Some(flow::ibv_create_flow);
    verbs.ibv_destroy_flow = Some(flow::ibv_destroy_flow);
    verbs.read_counters = Some(counters::ibv_read_counters);
    verbs.query_rt_values = Some(port::ibv_query_rt_values_ex);
    verbs.context.ops.poll_cq = Some(cq::poll_cq);
    verbs.context.ops.req_notify_cq = Some(cq::ibv_req_notify_cq);
    verbs.context.ops.post_send = Some(post::post_send);
    verbs.context.ops.post_recv = Some(post::post_recv);
    verbs.context.ops.post_srq_recv = Some(post::post_srq_recv);
    verbs.context.ops.alloc_mw = Some(mw::ibv_alloc_mw);
    verbs.context.ops.bind_mw = Some(mw::ibv_bind_mw);
    verbs.context.ops.dealloc_mw = Some(mw::ibv_dealloc_mw);
    verbs.create_qp_ex = Some(qp_create::ibv_create_qp_ex);
    verbs.open_qp = Some(qp_create::ibv_open_qp);
    verbs.modify_qp_rate_limit = Some(modify::ibv_modify_qp_rate_limit);
    verbs.create_srq_ex = Some(srq::ibv_create_srq_ex);
    verbs.get_srq_num = Some(srq::ibv_get_srq_num);
    verbs.open_xrcd = Some(xrc::ibv_open_xrcd);
    verbs.close_xrcd = Some(xrc::ibv_close_xrcd);
    verbs
}

/// An import owns `imported_by`.
pub(crate) fn open(
    opened: Result<Context, OpenError>,
    command_file: Arc<CommandFile>,
    imported_by: Option<c_int>,
) -> Result<*mut ibv_context> {
    Ctx::open(opened, operations(), command_file, imported_by)
}

calls!(
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
        let dev = Dev::listed(device, CallId::ibv_open_device.name())?;
        let command_file = CommandFile::new(dev)?;
        open(dev.open_or_down(), command_file, None)
    }
);
