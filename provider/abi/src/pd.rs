//! Protection domains.

use std::{cell::UnsafeCell, ffi::c_int, sync::Arc};

use roce_provider::ProtectionDomain;

use crate::{
    context::{Ctx, Home},
    errno::{self, Result},
    export::export,
    layout::verbs::{ibv_context, ibv_pd},
    object::{Object, Users},
};

/// A protection domain as programs hold it.
#[repr(C)]
pub(crate) struct Pd {
    c: UnsafeCell<ibv_pd>,
    pub(crate) domain: ProtectionDomain,
    pub(crate) home: Arc<Home>,
    /// What was made in it.
    pub(crate) users: Users,
}

// SAFETY: `repr(C)`, and it starts with its cell.
unsafe impl Object for Pd {
    type C = ibv_pd;
}

impl Pd {
    pub(crate) fn new(ctx: &Ctx, domain: ProtectionDomain) -> Self {
        let home = ctx.home.clone();
        let c = ibv_pd { context: ctx.c(), handle: home.new_handle() };
        Self { c: UnsafeCell::new(c), domain, home, users: Users::default() }
    }

    /// The context that it was made in.
    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: Nobody writes the member.
        unsafe { (*self.c()).context }
    }
}

unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let alloc = |ctx: &Ctx| -> Result<_> { Ok(Pd::new(ctx, ctx.home.context.alloc_pd()?).hand_out()) };
    errno::pointer(Ctx::get(context).and_then(alloc))
}

unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let free = Pd::get(pd).and_then(|pd| pd.users.none_left());
    errno::status(free.map(|()| drop(Pd::take_back(pd))))
}

export!(ibv_alloc_pd, ibv_dealloc_pd);
