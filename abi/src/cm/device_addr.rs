//! Contexts of ids, one per device, never closed.

use std::{collections::BTreeMap, sync::Once};

use roce_provider::{
    Context, Device, OpenError,
    cm::{DeviceSource, set_device_source},
};

use crate::{
    hooks::check::records,
    objects::{
        command_file::CommandFile,
        context::Ctx,
        device::{self, Dev},
        list,
        pd::ibv_alloc_pd,
        table,
    },
    prelude::*,
    sync::Mutex,
};

#[derive(Clone, Copy)]
pub(super) struct DeviceAddr {
    pub(super) verbs: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
}

// SAFETY: Both objects are thread-safe and never closed.
unsafe impl Send for DeviceAddr {}

static DEVICE_ADDRS: Mutex<BTreeMap<String, DeviceAddr>> = Mutex::new(BTreeMap::new());

/// Opens each device at most once.
struct Devices;

impl DeviceSource for Devices {
    fn devices(&self) -> Vec<Device> {
        device::all().into_iter().map(Dev::device).collect()
    }

    fn open(&self, device: &Device) -> Result<Context, OpenError> {
        Dev::of(device).open()
    }
}

/// Sets the device source; call before the first id.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_device_source(&Devices);
    });
}

pub(super) fn of(context: &Context) -> Result<DeviceAddr> {
    shared(Dev::named(context.name()).ok_or(Rule::NoDevice)?)
}

fn shared(dev: &'static Dev) -> Result<DeviceAddr> {
    let name = dev.device().name().to_owned();
    let mut addrs = DEVICE_ADDRS.lock();
    if let Some(addr) = addrs.get(&name) {
        // SAFETY: It is never closed.
        let ctx = unsafe { Ctx::get(addr.verbs) }?;
        if ctx.inner.context.is_of_this_process() {
            return Ok(*addr);
        }
    }
    let (verbs, pd) = records::for_itself(|| -> Result<_> {
        let command_file = CommandFile::new(dev)?;
        let verbs = table::open(dev.open(), command_file, None)?;
        // SAFETY: Just opened.
        Ok((verbs, unsafe { ibv_alloc_pd(verbs) }))
    })?;
    refuse_if(pd.is_null(), Rule::NoMemory)?;
    let addr = DeviceAddr { verbs, pd };
    addrs.insert(name, addr);
    Ok(addr)
}

calls!(
    /// Skips devices whose addresses another program has.
    fn rdma_get_devices(number: *mut c_int) -> *mut *mut ibv_context {
        prepare();
        let contexts: Vec<*mut ibv_context> = device::all()
            .into_iter()
            .filter_map(|dev| shared(dev).ok())
            .map(|addr| addr.verbs)
            .collect();
        if let Some(number) = number.as_mut() {
            *number = contexts.len() as c_int;
        }
        Ok(list::allocate(&contexts))
    }
);

unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    libc::free(list.cast());
}

export!(rdma_free_devices);
