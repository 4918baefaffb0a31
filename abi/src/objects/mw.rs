use std::cell::UnsafeCell;

use roce_provider::{
    MemoryWindow,
    transport::{
        mem::{Access, LKey, RKey, WindowBind, WindowType},
        qp::QpType,
        work::SendWr,
    },
};

use super::{
    object::{User, impl_object},
    pd::Pd,
    qp::Qp,
};
use crate::{
    hooks::check::keys,
    prelude::*,
    translate::{rights, wr},
};

#[repr(C)]
pub(crate) struct Mw {
    c: UnsafeCell<ibv_mw>,
    /// Deallocated on drop.
    window: MemoryWindow,
    _pd: User,
}

impl_object!(Mw, ibv_mw, context, handle);

operations!(
    fn ibv_alloc_mw(pd: *mut ibv_pd, number: c_uint) -> *mut ibv_mw {
        let pd = Pd::get(pd)?;
        let window_type = match number {
            IBV_MW_TYPE_1 => WindowType::Type1,
            IBV_MW_TYPE_2 => WindowType::Type2B,
            _ => return Err(Errno::of(Rule::WindowType)),
        };
        let window = pd.domain.alloc_window(window_type)?;
        let handle = pd.ctx.new_handle();
        let c = ibv_mw {
            context: pd.context(),
            pd: pd.c(),
            rkey: window.rkey().0,
            handle,
            r#type: number,
        };
        Ok(Mw { c: UnsafeCell::new(c), window, _pd: pd.users.add() }.into_raw())
    }

    fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
        Mw::get(mw)?;
        let rkey = (*mw).rkey;
        drop(Mw::from_raw(mw));
        keys::window_gone(rkey, "deallocated");
        Ok(())
    }

    /// Binds a type 1 window, with its next key.
    fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, request: *mut ibv_mw_bind) -> c_int {
        let qp = Qp::trust(qp)?;
        refuse_if(request.is_null() || mw.is_null(), Rule::NullArgument)?;
        let ibv_mw_bind { wr_id, send_flags, bind_info } = *request;
        let rkey = RKey((*mw).rkey).next().0;
        // type 1 is for connections, and has its region's addresses
        if qp.qp_type == QpType::Ud || bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
            return Err(Errno::of(Rule::WindowBind));
        }
        let bind = bind(mw, rkey, &bind_info)?;
        let rkey = bind.rkey;
        let wr = SendWr::bind_window(wr_id, bind).with_flags(wr::flags(send_flags)?);
        qp.qp.post_send(&[wr]).map_err(|failed| failed.error)?;
        set_rkey(mw, rkey);
        Ok(())
    }
);

pub(crate) unsafe fn bind(
    mw: *const ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<WindowBind> {
    let own = Mw::trust(mw)?.window.rkey().0;
    Ok(WindowBind {
        // only the low 8 bits, like mlx5 and rxe: programs count up from anywhere
        rkey: RKey(own & !0xFF | rkey & 0xFF),
        region: LKey(if info.mr.is_null() { 0 } else { (*info.mr).lkey }),
        address: info.addr,
        length: info.length,
        // local rights do not apply to windows
        access: rights::from_c(info.mw_access_flags)? - (Access::LOCAL_WRITE | Access::MW_BIND),
        zero_based: info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0,
    })
}

/// The window's key once its bind is posted.
pub(crate) unsafe fn set_rkey(mw: *mut ibv_mw, rkey: RKey) {
    let before = std::mem::replace(&mut (*mw).rkey, rkey.0);
    if before != rkey.0 {
        keys::window_gone(before, "rebound");
    }
}
