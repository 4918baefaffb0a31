//! Thread domains and parent domains.

use std::{cell::UnsafeCell, ffi::c_int, sync::Arc};

use roce_provider::ThreadDomain;

use crate::{
    context::{Ctx, Home},
    errno::{self, Errno, Result},
    layout::verbs::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr},
    object::{Object, Users},
    pd::Pd,
};

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`.
const ALLOCATORS: u32 = 1;
const PD_CONTEXT: u32 = 1 << 1;

/// A thread domain as programs hold it.
#[repr(C)]
pub(crate) struct Td {
    c: UnsafeCell<ibv_td>,
    domain: ThreadDomain,
    home: Arc<Home>,
    /// The parent domains that it is in.
    users: Users,
}

// SAFETY: `repr(C)`, and it starts with its cell.
unsafe impl Object for Td {
    type C = ibv_td;
}

/// `ibv_alloc_td`.
pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    let alloc = |ctx: &Ctx| {
        if attr.as_ref().is_none_or(|attr| attr.comp_mask != 0) {
            return Err(Errno::INVAL);
        }
        let (home, domain) = (ctx.home.clone(), ctx.home.context.alloc_td());
        Ok(Td { c: UnsafeCell::new(ibv_td { context }), domain, home, users: Users::default() }.hand_out())
    };
    errno::pointer(Ctx::get(context).and_then(alloc))
}

/// `ibv_dealloc_td`.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    let free = Td::get(td).and_then(|td| td.users.none_left());
    errno::status(free.map(|()| drop(Td::take_back(td))))
}

/// `ibv_alloc_parent_domain`. A program's allocators are for the rings of queues that a device reads by itself; here there are no
/// such rings, and so nothing to allocate with them.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let alloc = |ctx: &Ctx| -> Result<*mut ibv_pd> {
        let attr = attr.as_ref().ok_or(Errno::INVAL)?;
        let lacks_allocators = attr.comp_mask & ALLOCATORS != 0 && (attr.alloc.is_none() || attr.free.is_none());
        if attr.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 || lacks_allocators {
            return Err(Errno::INVAL);
        }
        let (pd, td) = (Pd::get(attr.pd)?, Td::get_optional(attr.td));
        if !Arc::ptr_eq(&pd.home, &ctx.home) || td.is_some_and(|td| !Arc::ptr_eq(&td.home, &ctx.home)) {
            return Err(Errno::INVAL);
        }
        let domain = pd.domain.parent_domain(td.map(|td| &td.domain))?;
        let holds = [Some(pd.users.add()), td.map(|td| td.users.add())].into_iter().flatten().collect();
        Ok(Pd::parent(ctx, domain, (*attr.pd).handle, holds).hand_out())
    };
    errno::pointer(Ctx::get(context).and_then(alloc))
}
