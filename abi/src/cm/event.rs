use std::{
    cell::UnsafeCell,
    ffi::{CStr, c_char, c_int, c_uint},
};

use roce_provider::calls::Call;

use super::registry::TakenEvent;
use crate::{
    call::{self, CallId},
    export::export,
    hooks::check,
    layout::{rdma_cm_event, rdma_cm_id},
    objects::object::{Object, impl_object},
};

/// Fills acknowledged events; no valid address, kind or status.
const GONE: u8 = 0xBA;

#[repr(C)]
pub(super) struct Event {
    c: UnsafeCell<rdma_cm_event>,
    /// Target of `private_data`.
    private_data: Box<[u8]>,
    /// Keeps the id or listener.
    _taken: TakenEvent,
}

impl_object!(Event, rdma_cm_event);

impl Event {
    pub(super) fn create_raw(
        c: rdma_cm_event,
        private_data: Box<[u8]>,
        taken: TakenEvent,
    ) -> *mut rdma_cm_event {
        Self { c: UnsafeCell::new(c), private_data, _taken: taken }.into_raw()
    }

    /// Under checks, later reads see [`GONE`].
    unsafe fn acknowledge(event: *mut rdma_cm_event) {
        let mut object = Self::from_raw(event);
        if check::is_on() {
            let mut data = std::mem::take(&mut object.private_data);
            data.fill(GONE);
            std::mem::forget(data);
            event.cast::<u8>().write_bytes(GONE, size_of::<rdma_cm_event>());
        }
    }
}

/// Acknowledges a blocking call's event.
pub(super) unsafe fn acknowledge_last(id: *mut rdma_cm_id) {
    let _call = Call::begin();
    let event = std::mem::replace(&mut (*id).event, std::ptr::null_mut());
    if !event.is_null() {
        Event::acknowledge(event);
    }
}

pub(super) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    call::control(CallId::rdma_ack_cm_event, || {
        Event::get(event)?;
        Event::acknowledge(event);
        Ok(())
    })
}

/// Names of [`EventKind::ALL`].
const NAMES: [&CStr; 19] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    c"RDMA_CM_EVENT_USER",
];

pub(super) unsafe extern "C" fn rdma_event_str(event: c_uint) -> *const c_char {
    NAMES.get(event as usize).copied().unwrap_or(c"UNKNOWN EVENT").as_ptr()
}

export!(rdma_ack_cm_event, rdma_event_str);

#[cfg(test)]
mod tests {
    use roce_provider::cm::EventKind;

    use super::*;

    #[test]
    fn events_have_the_names_that_the_provider_gives_them() {
        let names: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(NAMES.map(|name| name.to_str().unwrap()).to_vec(), names);
    }
}
