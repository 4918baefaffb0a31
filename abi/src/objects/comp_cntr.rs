use std::{cell::UnsafeCell, sync::Arc};

use roce_provider::transport::{
    qp::CountError,
    work::{CompletionCounter, Counted, CountedOps},
};

use super::{
    context::{ContextInner, Ctx},
    object::impl_object,
    qp::Qp,
};
use crate::{hooks::check::requests, prelude::*};

#[repr(C)]
pub(crate) struct CompCntr {
    c: UnsafeCell<ibv_comp_cntr>,
    ctx: Arc<ContextInner>,
    /// Also held by its queue pairs.
    counter: Arc<CompletionCounter>,
}

impl_object!(CompCntr, ibv_comp_cntr);

unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    context: *mut ibv_context,
    to: *mut ibv_comp_cntr_caps,
    room: usize,
) -> c_int {
    call::control(CallId::ibv_query_comp_cntr_caps, || {
        let _ = Ctx::get(context)?;
        refuse_if(to.is_null(), Rule::Members)?;
        let caps = ibv_comp_cntr_caps {
            max_value: u64::MAX,
            // programs print it as signed
            max_counters: i32::MAX.cast_unsigned(),
            supported_qp_attach_ops: CountedOps::all().bits(),
        };
        copy_sized(&caps, to, room);
        Ok(())
    })
}

calls!(
    fn ibv_create_comp_cntr(
        context: *mut ibv_context,
        attr: *mut ibv_comp_cntr_init_attr,
    ) -> *mut ibv_comp_cntr {
        let ctx = Ctx::get(context)?;
        let attr = attr.as_ref().ok_or(Rule::NullArgument)?;
        let counted = match attr.r#type {
            IBV_COMP_CNTR_TYPE_WRS => Counted::Requests,
            IBV_COMP_CNTR_TYPE_BYTES => Counted::Bytes,
            _ => return Err(Errno::of(Rule::Members)),
        };
        refuse_if(attr.comp_mask != 0 || attr.flags != 0, Rule::Members)?;
        let c = ibv_comp_cntr { context, handle: ctx.inner.new_handle() };
        let (ctx, counter) = (ctx.inner.clone(), Arc::new(CompletionCounter::new(counted)));
        Ok(CompCntr { c: UnsafeCell::new(c), ctx, counter }.into_raw())
    }

    /// `EBUSY` while attached.
    fn ibv_destroy_comp_cntr(counter: *mut ibv_comp_cntr) -> c_int {
        call::destroy::<CompCntr>(counter, |object| {
            refuse_if(Arc::strong_count(&object.counter) > 1, Rule::StillUsed)
        })
    }

    fn ibv_qp_attach_comp_cntr(
        qp: *mut ibv_qp,
        counter: *mut ibv_comp_cntr,
        attr: *mut ibv_qp_attach_comp_cntr_attr,
    ) -> c_int {
        let qp = Qp::get(qp)?;
        let (counter, attr) = (CompCntr::get(counter)?, attr.as_ref().ok_or(Rule::NullArgument)?);
        refuse_if(attr.comp_mask != 0 || !Arc::ptr_eq(&qp.ctx, &counter.ctx), Rule::Members)?;
        let ops = CountedOps::from_bits(attr.op_mask).ok_or(Rule::NotSupported)?;
        qp.qp.count_completions(ops, &counter.counter).map_err(|error| match error {
            CountError::Counted => Errno::plain(libc::EBUSY),
            _ => Errno::plain(libc::EINVAL),
        })?;
        requests::count_qp(qp.key());
        Ok(())
    }

    fn ibv_set_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
        with(counter, |counter| counter.set_completed(value))
    }

    fn ibv_set_err_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
        with(counter, |counter| counter.set_failed(value))
    }

    fn ibv_inc_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
        with(counter, |counter| counter.add_completed(amount))
    }

    fn ibv_inc_err_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
        with(counter, |counter| counter.add_failed(amount))
    }

    fn ibv_read_comp_cntr(counter: *mut ibv_comp_cntr, to: *mut u64) -> c_int {
        read(counter, to, CompletionCounter::completed)
    }

    fn ibv_read_err_comp_cntr(counter: *mut ibv_comp_cntr, to: *mut u64) -> c_int {
        read(counter, to, CompletionCounter::failed)
    }
);

unsafe fn with<R>(
    counter: *mut ibv_comp_cntr,
    action: impl FnOnce(&CompletionCounter) -> R,
) -> Result<R> {
    CompCntr::get(counter).map(|object| action(&object.counter))
}

unsafe fn read(
    counter: *mut ibv_comp_cntr,
    to: *mut u64,
    number: fn(&CompletionCounter) -> u64,
) -> Result<()> {
    let to = to.as_mut().ok_or(Rule::NullArgument)?;
    *to = with(counter, number)?;
    Ok(())
}

export!(_ibv_query_comp_cntr_caps);

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::ptr::null_mut;

    use super::*;
    use crate::{
        layout::{ibv_cq, ibv_qp_attr, ibv_recv_wr},
        objects::{
            cq::{ibv_create_cq, ibv_destroy_cq},
            modify::ibv_modify_qp,
            post::post_recv,
            qp::ibv_destroy_qp,
            qp_create::ibv_create_qp_ex,
        },
        tests::{Allocated, Opened, errno},
    };

    fn create(context: &Opened, r#type: u32, comp_mask: u32) -> *mut ibv_comp_cntr {
        let mut attr = ibv_comp_cntr_init_attr { comp_mask, r#type, flags: 0 };
        unsafe { ibv_create_comp_cntr(context.0, &raw mut attr) }
    }

    fn attach(qp: *mut ibv_qp, counter: *mut ibv_comp_cntr, op_mask: u32) -> c_int {
        let mut attr = ibv_qp_attach_comp_cntr_attr { comp_mask: 0, op_mask };
        unsafe { ibv_qp_attach_comp_cntr(qp, counter, &raw mut attr) }
    }

    fn create_qp(context: &Opened, pd: &Allocated, cq: *mut ibv_cq) -> *mut ibv_qp {
        let cap = ibv_qp_cap { max_recv_wr: 4, ..ibv_qp_cap::zeroed() };
        let mut attr = pd.init_attr(cq, cap);
        unsafe { ibv_create_qp_ex(context.0, &raw mut attr) }
    }

    #[test]
    fn what_can_be_counted_is_told_as_far_as_the_program_has_room() {
        let context = Opened::new();
        let mut caps =
            ibv_comp_cntr_caps { supported_qp_attach_ops: 7, ..ibv_comp_cntr_caps::zeroed() };
        unsafe {
            assert_eq!(_ibv_query_comp_cntr_caps(context.0, null_mut(), 16), libc::EINVAL);
            assert_eq!(_ibv_query_comp_cntr_caps(context.0, &raw mut caps, 12), 0);
            assert_eq!((caps.max_value, caps.supported_qp_attach_ops), (u64::MAX, 7));
            assert_eq!(_ibv_query_comp_cntr_caps(context.0, &raw mut caps, 16), 0);
        }
        assert_eq!(caps.supported_qp_attach_ops, 0b11_1111);
    }

    #[test]
    fn a_counter_counts_what_it_is_attached_for() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        assert_eq!((create(&context, 2, 0), errno()), (null_mut(), libc::EINVAL));
        assert_eq!((create(&context, 0, 1), errno()), (null_mut(), libc::EINVAL));
        let counter = create(&context, IBV_COMP_CNTR_TYPE_WRS, 0);
        let other = create(&context, IBV_COMP_CNTR_TYPE_BYTES, 0);
        unsafe {
            let cq = ibv_create_cq(context.0, 8, null_mut(), null_mut(), 0);
            let qp = create_qp(&context, &pd, cq);
            let recv = CountedOps::RECV.bits();
            assert_eq!(attach(qp, counter, 0), libc::EINVAL);
            assert_eq!(attach(qp, counter, 1 << 6), libc::EOPNOTSUPP);
            assert_eq!(attach(qp, counter, recv), 0);
            assert_eq!(attach(qp, other, recv | 1), libc::EBUSY);
            assert_eq!(attach(qp, other, 1), 0);
            assert_eq!(ibv_destroy_comp_cntr(counter), libc::EBUSY);

            let mut attr =
                ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 1, ..ibv_qp_attr::zeroed() };
            let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            assert_eq!(ibv_modify_qp(qp, &raw mut attr, mask.cast_signed()), 0);
            for _ in 0..3 {
                let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), null_mut());
                assert_eq!(post_recv(qp, &raw mut wr, &raw mut bad), 0);
            }
            attr.qp_state = IBV_QPS_ERR;
            assert_eq!(ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE.cast_signed()), 0);
            assert_eq!(attach(qp, counter, 1 << 2), libc::EINVAL, "too late");
            let numbers = |counter| {
                let (mut completed, mut failed) = (9, 9);
                assert_eq!(ibv_read_comp_cntr(counter, &raw mut completed), 0);
                assert_eq!(ibv_read_err_comp_cntr(counter, &raw mut failed), 0);
                (completed, failed)
            };
            assert_eq!((numbers(counter), numbers(other)), ((0, 3), (0, 0)));
            assert_eq!(ibv_read_comp_cntr(counter, null_mut()), libc::EINVAL);

            assert_eq!(ibv_set_comp_cntr(counter, 40) + ibv_inc_comp_cntr(counter, 2), 0);
            assert_eq!(ibv_set_err_comp_cntr(counter, 5) + ibv_inc_err_comp_cntr(counter, 1), 0);
            assert_eq!(numbers(counter), (42, 6));
            assert_eq!(ibv_destroy_qp(qp), 0);
            assert_eq!(ibv_destroy_comp_cntr(counter) + ibv_destroy_comp_cntr(other), 0);
            assert_eq!(ibv_destroy_cq(cq), 0);
        }
    }
}
