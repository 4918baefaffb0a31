//! Flows of raw packets.

use std::{cell::UnsafeCell, sync::Arc};

use roce_provider::{Flow, copy_from_program};

use super::{
    context::ContextInner,
    object::{User, impl_object},
    qp::Qp,
};
use crate::{prelude::*, translate::flow};

#[allow(non_camel_case_types, reason = "named as in C")]
#[repr(C)]
pub(crate) struct ibv_flow {
    comp_mask: u32,
    context: *mut ibv_context,
    handle: u32,
}

#[repr(C)]
pub(crate) struct FlowObject {
    c: UnsafeCell<ibv_flow>,
    #[allow(dead_code, reason = "only held")]
    flow: Flow,
    #[allow(dead_code, reason = "only held")]
    ctx: Arc<ContextInner>,
    _qp: User,
}

impl_object!(FlowObject, ibv_flow, context, handle);

operations!(
    fn ibv_create_flow(qp: *mut ibv_qp, given: *mut c_void) -> *mut c_void {
        let object = Qp::get(qp)?;
        refuse_if(given.is_null(), Rule::NullArgument)?;
        let given = given.cast::<u8>();
        let attr = flow::from_c(|at, to| {
            Ok(copy_from_program(given.wrapping_add(at), to.as_mut_ptr(), to.len())?)
        })?;
        let flow = object.qp.create_flow(&attr)?;
        let (context, handle) = ((*qp).context, object.ctx.new_handle());
        let c = UnsafeCell::new(ibv_flow { comp_mask: 0, context, handle });
        let ctx = object.ctx.clone();
        Ok(FlowObject { c, flow, ctx, _qp: object.users.add() }.into_raw().cast::<c_void>())
    }

    fn ibv_destroy_flow(flow: *mut c_void) -> c_int {
        call::destroy::<FlowObject>(flow.cast(), |_| Ok(()))
    }
);
