//! Address handles, and the vectors in them.

use std::{cell::UnsafeCell, ffi::c_int};

use roce_provider::{
    AddressHandle,
    transport::addr::{AddressVector, Gid, StaticRate},
};

use crate::{
    context::Ctx,
    errno::{self, Errno, Result},
    export::export,
    layout::verbs::{
        ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_wc,
    },
    object::{Object, User},
    pd::Pd,
};

/// An address handle as programs hold it.
#[repr(C)]
pub(crate) struct Ah {
    c: UnsafeCell<ibv_ah>,
    pub(crate) handle: AddressHandle,
    _pd: User,
}

// SAFETY: `repr(C)`, and it starts with its cell.
unsafe impl Object for Ah {
    type C = ibv_ah;
}

/// What C says of the way to a peer. There is no other than by GID, and one port.
pub(crate) fn vector(attr: &ibv_ah_attr) -> Result<AddressVector> {
    if attr.is_global == 0 || attr.port_num != 1 {
        return Err(Errno::INVAL);
    }
    let ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } = attr.grh;
    Ok(AddressVector {
        dgid: Gid(dgid.raw),
        sgid_index: sgid_index.into(),
        flow_label,
        traffic_class,
        hop_limit,
        static_rate: StaticRate::from_code(attr.static_rate).ok_or(Errno::INVAL)?,
    })
}

/// The same the other way round.
pub(crate) const fn attributes(av: &AddressVector) -> ibv_ah_attr {
    let AddressVector { dgid, sgid_index, flow_label, traffic_class, hop_limit, static_rate } = *av;
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: dgid.0 },
            flow_label,
            sgid_index: sgid_index as u8, // the table has at most 256 entries
            hop_limit,
            traffic_class,
        },
        static_rate: static_rate as u8,
        is_global: 1,
        port_num: 1,
        ..ibv_ah_attr::zeroed()
    }
}

unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah> {
    let pd = Pd::get(pd)?;
    let handle = pd.domain.create_ah(vector(attr)?)?;
    let c = ibv_ah { context: pd.context(), pd: pd.c(), handle: pd.home.new_handle() };
    Ok(Ah { c: UnsafeCell::new(c), handle, _pd: pd.users.add() }.hand_out())
}

unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    errno::pointer(attr.as_ref().ok_or(Errno::INVAL).and_then(|attr| create(pd, attr)))
}

unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    let free = Ah::get(ah).map(|_| ());
    errno::status(free.map(|()| drop(Ah::take_back(ah))))
}

/// `IBV_WC_GRH`.
const GRH: u32 = 1;
/// What answers may cost in hops: as many as there can be.
const HOP_LIMIT: u8 = 0xFF;

/// The way back to whoever sent the datagram that `wc` and the 40 bytes in front of it tell of.
unsafe fn reply_path(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
) -> Result<ibv_ah_attr> {
    let (ctx, wc) = (Ctx::get(context)?, wc.as_ref().ok_or(Errno::INVAL)?);
    if port != 1 {
        return Err(Errno::INVAL);
    }
    let link = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ibv_ah_attr::zeroed()
    };
    if wc.wc_flags & GRH == 0 {
        return Ok(link);
    }
    let area = grh.cast::<[u8; size_of::<ibv_grh>()]>().as_ref().ok_or(Errno::INVAL)?;
    let mut attr = attributes(&ctx.home.context.init_ah_from_wc(area).map_err(|_| Errno::INVAL)?);
    attr.grh.hop_limit = HOP_LIMIT;
    Ok(ibv_ah_attr { grh: attr.grh, is_global: 1, ..link })
}

unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    errno::minus_one(reply_path(context, port, wc, grh).map(|found| *attr = found))
}

unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let context = Pd::get(pd).map(Pd::context);
    errno::pointer(context.and_then(|context| create(pd, &reply_path(context, port, wc, grh)?)))
}

export!(ibv_create_ah, ibv_destroy_ah, ibv_init_ah_from_wc, ibv_create_ah_from_wc);
