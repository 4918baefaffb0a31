//! Events written by the program, and of lookups.

use std::mem;

use roce_provider::{calls::Call, cm::EventKind};

use super::{
    addrinfo::{AddressList, Addresses, look_up},
    get_event::wait_for_event,
    id::Id,
};
use crate::prelude::*;

calls!(
    fn rdma_write_cm_event(id: *mut rdma_cm_id, event: c_uint, status: c_int, arg: u64) -> c_int {
        let id = Id::get(id)?;
        refuse_if(event != EventKind::User as c_uint, Rule::Event)?;
        id.cm()?.write_event(status, arg);
        Ok(())
    }

    /// `ENOENT` without untaken addresses.
    fn rdma_query_addrinfo(id: *mut rdma_cm_id, to: *mut *mut rdma_addrinfo) -> c_int {
        let id = Id::get(id)?;
        let to = to.as_mut().ok_or(Rule::NullArgument)?;
        let addresses = &mut id.settings().addresses;
        match mem::take(addresses) {
            Addresses::Found(found) => {
                *to = found.into_raw();
                Ok(())
            }
            other => {
                *addresses = other;
                Err(Errno::of(Rule::Name))
            }
        }
    }
);

/// `EBUSY` until the previous addresses are taken; `EOPNOTSUPP` for a subnet administrator, which
/// RoCE lacks.
unsafe fn reserve(id: *mut rdma_cm_id, hints: *const rdma_addrinfo) -> Result<()> {
    let _call = Call::begin();
    let id = Id::get(id)?;
    let flags = hints.as_ref().map_or(0, |hints| hints.ai_flags);
    let rule = if flags & RAI_DNS != 0 { Rule::Members } else { Rule::NotSupported };
    refuse_if(flags & RAI_SA != 0, rule)?;
    let addresses = &mut id.settings().addresses;
    refuse_if(!matches!(addresses, Addresses::None), Rule::Busy)?;
    *addresses = Addresses::Pending;
    Ok(())
}

/// Reports only success as an event.
unsafe fn settle(id: *mut rdma_cm_id, found: Result<AddressList>) -> Result<()> {
    let _call = Call::begin();
    let id = Id::get(id)?;
    let (addresses, result) = match found {
        Ok(found) => (Addresses::Found(found), Ok(())),
        Err(error) => (Addresses::None, Err(error)),
    };
    id.settings().addresses = addresses;
    if result.is_ok() {
        id.cm()?.report_addrinfo();
    }
    result
}

waiting_calls!(
    /// Waits for the name server, as in librdmacm. A failure reports no event.
    fn rdma_resolve_addrinfo(
        id: *mut rdma_cm_id,
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
    ) -> c_int {
        reserve(id, hints)?;
        settle(id, look_up(node, service, hints))?;
        wait_for_event(id)
    }
);

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::ptr::{null, null_mut};

    use roce_provider::cm::PortSpace;

    use super::*;
    use crate::{
        cm::{
            address,
            addrinfo::rdma_freeaddrinfo,
            channel,
            event::{rdma_ack_cm_event, rdma_event_str},
            get_event::next,
            lifecycle,
        },
        layout::rdma_event_channel,
        tests::errno,
    };

    /// Number, status, argument.
    unsafe fn take(channel: *mut rdma_event_channel) -> (c_uint, c_int, u64) {
        let event = next(channel).unwrap();
        let taken = ((*event).event, (*event).status, (*event).param.arg);
        assert_eq!(rdma_ack_cm_event(event), 0);
        taken
    }

    #[test]
    fn a_program_wakes_itself() {
        unsafe {
            let channel = channel::create().unwrap();
            let id = lifecycle::create(channel, null_mut(), PortSpace::Tcp, None).unwrap();
            let user = EventKind::User as c_uint;
            assert_eq!((rdma_write_cm_event(id, 19, 0, 0), errno()), (-1, libc::EINVAL));
            assert_eq!(rdma_write_cm_event(id, user, -5, u64::MAX), 0);
            assert_eq!(rdma_write_cm_event(id, user, 6, 1 << 33), 0);
            assert_eq!(take(channel), (user, -5, u64::MAX));
            assert_eq!(take(channel), (user, 6, 1 << 33));
            lifecycle::destroy(id).unwrap();
            channel::destroy(channel);
        }
    }

    #[test]
    fn a_name_is_looked_up_once_at_a_time() {
        unsafe {
            let channel = channel::create().unwrap();
            let id = lifecycle::create(channel, null_mut(), PortSpace::Tcp, None).unwrap();
            let hints = |ai_flags| rdma_addrinfo { ai_flags, ..rdma_addrinfo::zeroed() };
            let resolve = |node: *const c_char, flags| {
                rdma_resolve_addrinfo(id, node, c"7471".as_ptr(), &hints(flags))
            };
            let mut found = null_mut();
            let host = c"10.0.0.7".as_ptr();
            assert_eq!((resolve(host, RAI_SA), errno()), (-1, libc::EOPNOTSUPP));
            assert_eq!((resolve(host, RAI_SA | RAI_DNS), errno()), (-1, libc::EINVAL));
            let name = c"no.number".as_ptr();
            assert_eq!((resolve(name, RAI_NUMERICHOST), errno()), (-1, libc::ENOENT));
            assert_eq!((rdma_query_addrinfo(id, &raw mut found), errno()), (-1, libc::ENOENT));

            assert_eq!(resolve(host, RAI_DNS), 0);
            assert_eq!((resolve(host, 0), errno()), (-1, libc::EBUSY), "not taken yet");
            assert_eq!(take(channel), (EventKind::AddrinfoResolved as c_uint, 0, 0));
            assert_eq!(rdma_query_addrinfo(id, &raw mut found), 0);
            assert_eq!(address::read((*found).ai_dst_addr), Ok("10.0.0.7:7471".parse().unwrap()));
            rdma_freeaddrinfo(found);
            assert_eq!((rdma_query_addrinfo(id, &raw mut found), errno()), (-1, libc::ENOENT));

            assert_eq!(resolve(null(), RAI_PASSIVE), 0);
            lifecycle::destroy(id).unwrap(); // with untaken results
            channel::destroy(channel);

            // without a channel
            let id = lifecycle::create(null_mut(), null_mut(), PortSpace::Tcp, None).unwrap();
            assert_eq!(rdma_resolve_addrinfo(id, host, null(), null()), 0);
            assert_eq!(rdma_query_addrinfo(id, &raw mut found), 0);
            rdma_freeaddrinfo(found);
            lifecycle::destroy(id).unwrap();
        }
    }

    #[test]
    fn the_new_events_have_names() {
        let name = |event| unsafe { std::ffi::CStr::from_ptr(rdma_event_str(event)) };
        assert_eq!(name(16), c"RDMA_CM_EVENT_ADDRINFO_RESOLVED");
        assert_eq!(name(19), c"UNKNOWN EVENT");
    }
}
