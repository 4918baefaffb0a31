use std::cell::UnsafeCell;

use roce_provider::{AddressHandle, copy_from_program};

use super::{
    context::Ctx,
    object::{User, impl_object},
    pd::Pd,
};
use crate::{hooks::check::requests, prelude::*, translate::address};

#[repr(C)]
pub(crate) struct Ah {
    c: UnsafeCell<ibv_ah>,
    pub(crate) handle: AddressHandle,
    _pd: User,
}

impl_object!(Ah, ibv_ah, context, handle);

unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah> {
    let pd = Pd::get(pd)?;
    let handle = pd.domain.create_ah(address::from_c(attr)?)?;
    let c = ibv_ah { context: pd.context(), pd: pd.c(), handle: pd.ctx.new_handle() };
    Ok(Ah { c: UnsafeCell::new(c), handle, _pd: pd.users.add() }.into_raw())
}

calls!(
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        let attr = attr.as_ref().ok_or(Rule::NullArgument)?;
        create(pd, attr)
    }

    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
        call::destroy::<Ah>(ah, |_| {
            requests::remove_ah(ah as usize);
            Ok(())
        })
    }

    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        attr: *mut ibv_ah_attr,
    ) -> c_int {
        reply_path(context, port, wc, grh).map(|found| *attr = found)
    }

    fn ibv_create_ah_from_wc(
        pd: *mut ibv_pd,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        port: u8,
    ) -> *mut ibv_ah {
        let context = Pd::get(pd)?.context();
        create(pd, &reply_path(context, port, wc, grh)?)
    }
);

/// Hop limit of responses.
const HOP_LIMIT: u8 = 0xFF;

/// Path to a datagram's sender.
unsafe fn reply_path(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
) -> Result<ibv_ah_attr> {
    let (ctx, wc) = (Ctx::get(context)?, wc.as_ref().ok_or(Rule::NullArgument)?);
    refuse_if(port != 1, Rule::Port)?;
    let link = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ibv_ah_attr::zeroed()
    };
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(link);
    }
    refuse_if(grh.is_null(), Rule::NullArgument)?;
    // in the receive buffer
    let mut area = [0; size_of::<ibv_grh>()];
    copy_from_program(grh.cast(), area.as_mut_ptr(), area.len())?;
    let mut attr = address::to_c(
        &ctx.inner.context.init_ah_from_wc(&area).map_err(|_| Errno::plain(libc::EINVAL))?,
    );
    attr.grh.hop_limit = HOP_LIMIT;
    // on Ethernet wc.sl is the packet type
    Ok(ibv_ah_attr { grh: attr.grh, is_global: 1, sl: attr.sl, ..link })
}
