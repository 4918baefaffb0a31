//! Thread domains and parent domains.

use std::{cell::UnsafeCell, mem::offset_of, sync::Arc};

use roce_provider::ThreadDomain;

use super::{
    context::{ContextInner, Ctx},
    object::{Users, impl_object},
    pd::Pd,
};
use crate::{hooks::check::single, prelude::*};

#[repr(C)]
pub(crate) struct Td {
    c: UnsafeCell<ibv_td>,
    domain: ThreadDomain,
    ctx: Arc<ContextInner>,
    /// Parent domains.
    users: Users,
}

impl_object!(Td, ibv_td);

operations!(
    fn ibv_alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
        let ctx = Ctx::get(context)?;
        refuse_if(attr.as_ref().is_none_or(|attr| attr.comp_mask != 0), Rule::ThreadDomain)?;
        let (ctx, domain) = (ctx.inner.clone(), ctx.inner.context.alloc_td());
        Ok(Td { c: UnsafeCell::new(ibv_td { context }), domain, ctx, users: Users::default() }
            .into_raw())
    }

    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int {
        call::destroy::<Td>(td, |td| td.users.none_left())
    }

    /// Ignores allocators (for rings that devices read) and permission to share memory with a
    /// confidential guest's host: neither is needed.
    fn ibv_alloc_parent_domain(
        context: *mut ibv_context,
        attr: *mut ibv_parent_domain_init_attr,
    ) -> *mut ibv_pd {
        let ctx = Ctx::get(context)?;
        // the program's structure may be shorter
        let length = |attr: *const ibv_parent_domain_init_attr| {
            if (*attr).comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0 {
                offset_of!(ibv_parent_domain_init_attr, pd_context)
            } else {
                offset_of!(ibv_parent_domain_init_attr, alloc)
            }
        };
        let attr = read_sized(attr, ibv_parent_domain_init_attr::zeroed(), length)
            .ok_or(Rule::NullArgument)?;
        let lacks_allocators = attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0
            && (attr.alloc.is_none() || attr.free.is_none());
        let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
            | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
            | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
        refuse_if(attr.comp_mask & !known != 0 || lacks_allocators, Rule::Allocator)?;
        let (pd, td) = (Pd::get(attr.pd)?, Td::get_optional(attr.td)?);
        let is_foreign = |other| !Arc::ptr_eq(other, &ctx.inner);
        refuse_if(is_foreign(&pd.ctx) || td.is_some_and(|td| is_foreign(&td.ctx)), Rule::Members)?;
        let domain = pd.domain.parent_domain(td.map(|td| &td.domain))?;
        let holds =
            [Some(pd.users.add()), td.map(|td| td.users.add())].into_iter().flatten().collect();
        let parent = Pd::parent(ctx, domain, (*attr.pd).handle, holds).into_raw();
        if td.is_some() {
            single::promised(parent as usize, "it was made with a thread domain");
        }
        Ok(parent)
    }
);

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::ptr::null_mut;

    use super::*;
    use crate::{
        layout::ibv_cq_init_attr_ex,
        objects::{cq::ibv_destroy_cq, cq_ex::ibv_create_cq_ex, pd::ibv_dealloc_pd},
        tests::{Allocated, Opened, errno},
    };

    fn td(context: &Opened, comp_mask: u32) -> *mut ibv_td {
        unsafe { ibv_alloc_td(context.0, &mut ibv_td_init_attr { comp_mask }) }
    }

    fn parent(context: &Opened, pd: *mut ibv_pd, td: *mut ibv_td, comp_mask: u32) -> *mut ibv_pd {
        let mut attr = ibv_parent_domain_init_attr {
            pd,
            td,
            comp_mask,
            ..ibv_parent_domain_init_attr::zeroed()
        };
        unsafe { ibv_alloc_parent_domain(context.0, &raw mut attr) }
    }

    #[test]
    fn a_parent_domain_keeps_what_it_stands_for_and_a_queue_keeps_it() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        let td = td(&context, 0);
        let parent = parent(&context, pd.0, td, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT);
        unsafe {
            assert_eq!((*parent).handle, (*pd.0).handle);
            assert_eq!(ibv_dealloc_pd(pd.0), libc::EBUSY);
            assert_eq!(ibv_dealloc_td(td), libc::EBUSY);
            let mut attr = ibv_cq_init_attr_ex {
                cqe: 1,
                comp_mask: 2,
                parent_domain: parent,
                ..ibv_cq_init_attr_ex::zeroed()
            };
            let cq = ibv_create_cq_ex(context.0, &raw mut attr);
            assert_eq!(ibv_dealloc_pd(parent), libc::EBUSY);
            assert_eq!(ibv_destroy_cq(cq.cast()), 0);
            attr.parent_domain = pd.0;
            assert_eq!(
                (ibv_create_cq_ex(context.0, &raw mut attr), errno()),
                (null_mut(), libc::EINVAL),
                "not a parent domain"
            );
            assert_eq!(ibv_dealloc_pd(parent), 0);
            assert_eq!(ibv_dealloc_td(td), 0);
        }
    }

    #[test]
    fn domains_that_cannot_be() {
        let (context, other) = (Opened::new(), Opened::new());
        let (pd, foreign) = (Allocated::new(&context), Allocated::new(&other));
        assert_eq!((td(&context, 1), errno()), (null_mut(), libc::EINVAL));
        for (pd, comp_mask) in [
            (null_mut(), 0),
            (pd.0, 8),
            (pd.0, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS),
            (foreign.0, 0),
        ] {
            assert_eq!(
                (parent(&context, pd, null_mut(), comp_mask), errno()),
                (null_mut(), libc::EINVAL),
                "mask {comp_mask}"
            );
        }
        let shared = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
        let parent_of = parent(&context, pd.0, null_mut(), shared);
        assert_eq!(unsafe { ibv_dealloc_pd(parent_of) }, 0);
        let td = td(&other, 0);
        assert_eq!(
            (parent(&context, pd.0, td, 0), errno()),
            (null_mut(), libc::EINVAL),
            "a thread domain of another context"
        );
        assert_eq!(unsafe { ibv_dealloc_td(td) }, 0);
    }
}
