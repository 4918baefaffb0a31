use std::{cell::UnsafeCell, ffi::CString, sync::LazyLock};

use roce_provider::{calls::Call, cm::EventKind};

use super::registry::TakenEvent;
use crate::{hooks::check, objects::object::impl_object, prelude::*};

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

calls!(
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
        Event::get(event)?;
        Event::acknowledge(event);
        Ok(())
    }
);

/// Names of [`EventKind::ALL`].
static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    EventKind::ALL.iter().filter_map(|kind| CString::new(kind.name()).ok()).collect()
});

pub(super) unsafe extern "C" fn rdma_event_str(event: c_uint) -> *const c_char {
    let _call = Call::begin();
    NAMES.get(event as usize).map_or(c"UNKNOWN EVENT", CString::as_c_str).as_ptr()
}

export!(rdma_event_str);
