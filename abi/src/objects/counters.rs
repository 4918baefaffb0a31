//! Counters of the device's received packets, never attached to a flow.

use std::{cell::UnsafeCell, sync::Arc};

use super::{
    context::{ContextInner, Ctx},
    object::impl_object,
};
use crate::{prelude::*, sync::Mutex};

#[repr(C)]
pub(crate) struct Counters {
    c: UnsafeCell<ibv_counters>,
    ctx: Arc<ContextInner>,
    attached: Mutex<Vec<Attached>>,
}

/// `before`: the count on attachment.
struct Attached {
    index: u32,
    before: u64,
}

impl_object!(Counters, ibv_counters);

impl Counters {
    fn packets(&self) -> u64 {
        self.ctx.context.counters().received_packets
    }
}

operations!(
    fn ibv_create_counters(
        context: *mut ibv_context,
        attr: *mut ibv_counters_init_attr,
    ) -> *mut ibv_counters {
        let ctx = Ctx::get(context)?;
        refuse_if(attr.as_ref().is_none_or(|attr| attr.comp_mask != 0), Rule::Members)?;
        let (c, ctx) = (UnsafeCell::new(ibv_counters { context }), ctx.inner.clone());
        Ok(Counters { c, ctx, attached: Mutex::default() }.into_raw())
    }

    fn ibv_destroy_counters(counters: *mut ibv_counters) -> c_int {
        call::destroy::<Counters>(counters, |_| Ok(()))
    }

    /// `EINVAL` for a flow, `EOPNOTSUPP` except for packets.
    fn ibv_attach_counters_point_flow(
        counters: *mut ibv_counters,
        attr: *mut ibv_counter_attach_attr,
        flow: *mut c_void,
    ) -> c_int {
        let counters = Counters::get(counters)?;
        let attr = attr.as_ref().ok_or(Rule::NullArgument)?;
        refuse_if(!flow.is_null() || attr.comp_mask != 0, Rule::Members)?;
        refuse_if(attr.counter_desc != IBV_COUNTER_PACKETS, Rule::NotSupported)?;
        counters.attached.lock().push(Attached { index: attr.index, before: counters.packets() });
        Ok(())
    }

    /// `EINVAL` with too few values.
    fn ibv_read_counters(
        counters: *mut ibv_counters,
        values: *mut u64,
        number: u32,
        flags: u32,
    ) -> c_int {
        let counters = Counters::get(counters)?;
        let attached = counters.attached.lock();
        let is_unknown = flags & !IBV_READ_COUNTERS_ATTR_PREFER_CACHED != 0;
        let has_room = attached.iter().all(|attached| attached.index < number);
        refuse_if(is_unknown || values.is_null() || !has_room, Rule::NoCounter)?;
        let packets = counters.packets();
        for Attached { index, before } in &*attached {
            *values.add(*index as usize) = packets - before;
        }
        Ok(())
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
    use crate::tests::{Opened, errno};

    #[test]
    fn packets_are_told_where_the_program_wants_them() {
        let context = Opened::new();
        unsafe {
            let refused =
                ibv_create_counters(context.0, &mut ibv_counters_init_attr { comp_mask: 1 });
            assert_eq!((refused, errno()), (null_mut(), libc::EINVAL));
            let counters =
                ibv_create_counters(context.0, &mut ibv_counters_init_attr { comp_mask: 0 });
            let attach = |counter_desc, comp_mask, flow| {
                let mut attr = ibv_counter_attach_attr { counter_desc, index: 2, comp_mask };
                ibv_attach_counters_point_flow(counters, &raw mut attr, flow)
            };
            assert_eq!(
                attach(IBV_COUNTER_PACKETS, 0, 8 as *mut c_void),
                libc::EINVAL,
                "there are no flows"
            );
            assert_eq!(attach(IBV_COUNTER_PACKETS, 1, null_mut()), libc::EINVAL);
            assert_eq!(attach(1, 0, null_mut()), libc::EOPNOTSUPP, "bytes are not counted");
            assert_eq!(attach(IBV_COUNTER_PACKETS, 0, null_mut()), 0);

            let mut values = [u64::MAX; 3];
            assert_eq!(
                ibv_read_counters(counters, values.as_mut_ptr(), 2, 0),
                libc::EINVAL,
                "no room"
            );
            assert_eq!(ibv_read_counters(counters, values.as_mut_ptr(), 3, 2), libc::EINVAL);
            assert_eq!(values, [u64::MAX; 3]);
            assert_eq!(
                ibv_read_counters(
                    counters,
                    values.as_mut_ptr(),
                    3,
                    IBV_READ_COUNTERS_ATTR_PREFER_CACHED
                ),
                0
            );
            assert_eq!(values[..2], [u64::MAX; 2]);
            assert_ne!(values[2], u64::MAX);
            assert_eq!(ibv_destroy_counters(counters), 0);
        }
    }
}
