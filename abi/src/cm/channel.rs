use std::{
    cell::UnsafeCell,
    os::fd::{AsFd, AsRawFd},
};

use roce_provider::cm::EventChannel;

use super::{device_addr, registry};
use crate::{
    hooks::check::{self, Kind, wake_ups},
    objects::object::impl_object,
    prelude::*,
    wait::blocking,
};

#[repr(C)]
pub(super) struct Channel {
    c: UnsafeCell<rdma_event_channel>,
    pub(super) channel: EventChannel,
}

impl_object!(Channel, rdma_event_channel);

pub(super) fn create() -> Result<*mut rdma_event_channel> {
    device_addr::prepare();
    let channel = EventChannel::new()?;
    blocking(&channel)?;
    let fd = channel.as_fd().as_raw_fd();
    let c = rdma_event_channel { fd };
    let channel = Channel { c: UnsafeCell::new(c), channel }.into_raw();
    wake_ups::add_channel(channel as usize, fd, false, endless);
    Ok(channel)
}

pub(super) unsafe fn destroy(channel: *mut rdma_event_channel) {
    wake_ups::remove_channel(channel as usize);
    drop(Channel::from_raw(channel));
}

unsafe fn users(channel: usize) -> usize {
    registry::pointers().iter().filter(|id| (***id).channel as usize == channel).count()
}

/// An id may cause an event at any time.
fn endless(call: &str, channel: usize) -> Option<String> {
    // SAFETY: Under checks, destroyed ids stay readable.
    let number = unsafe { users(channel) };
    (number == 0).then(|| format!("{call}: no id uses the channel"))
}

calls!(
    fn rdma_create_event_channel() -> *mut rdma_event_channel {
        create()
    }

    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
        if Channel::get(channel).is_err() {
            return;
        }
        if check::is_on()
            && let number @ 1.. = users(channel as usize)
        {
            let what = format!("rdma_destroy_event_channel, which {number} ids use");
            check::emit_here(Kind::CmChannelInUse, "destroyed", what);
        }
        destroy(channel);
    }
);
