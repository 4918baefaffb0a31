use std::{cell::UnsafeCell, sync::Arc};

use roce_provider::ProtectionDomain;

use super::{
    context::{ContextInner, Ctx},
    object::{User, Users, impl_object},
};
use crate::prelude::*;

#[repr(C)]
pub(crate) struct Pd {
    c: UnsafeCell<ibv_pd>,
    pub(crate) domain: ProtectionDomain,
    pub(crate) ctx: Arc<ContextInner>,
    pub(crate) users: Users,
    /// Sources of a parent domain.
    parent_of: Vec<User>,
}

impl_object!(Pd, ibv_pd, context, handle);

impl Pd {
    fn create_raw(ctx: &Ctx, domain: ProtectionDomain) -> *mut ibv_pd {
        let handle = ctx.inner.new_handle();
        let pd = Self::with_handle(ctx, domain, handle).into_raw();
        ctx.inner.command_file.insert::<Self>(handle, pd);
        pd
    }

    pub(crate) fn with_handle(ctx: &Ctx, domain: ProtectionDomain, handle: u32) -> Self {
        Self::parent(ctx, domain, handle, Vec::new())
    }

    pub(crate) fn parent(
        ctx: &Ctx,
        domain: ProtectionDomain,
        handle: u32,
        parent_of: Vec<User>,
    ) -> Self {
        let c = UnsafeCell::new(ibv_pd { context: ctx.c(), handle });
        Self { c, domain, ctx: ctx.inner.clone(), users: Users::default(), parent_of }
    }

    pub(crate) fn is_parent(&self) -> bool {
        !self.parent_of.is_empty()
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: The member is never written.
        unsafe { (*self.c()).context }
    }
}

calls!(
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
        let ctx = Ctx::get(context)?;
        Ok(Pd::create_raw(ctx, ctx.inner.context.alloc_pd()?))
    }

    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
        call::destroy::<Pd>(pd, |object| {
            object.users.none_left()?;
            object.ctx.command_file.remove::<Pd>((*pd).handle, pd);
            Ok(())
        })
    }
);
