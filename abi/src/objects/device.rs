use std::{cell::UnsafeCell, collections::BTreeMap, net::IpAddr, sync::Once, time::Duration};

use roce_provider::{
    Context, Device, OpenError, OpenOptions, WeakContext, calls::Call, environment,
    link::BindError, report,
};

use super::{list, object::impl_object};
use crate::{
    hooks::check::{self, devices},
    prelude::*,
    second,
    sync::Mutex,
};

#[repr(C)]
pub(crate) struct Dev {
    c: UnsafeCell<ibv_device>,
    /// Members of `verbs_device`. Drivers compare `ops` to recognize their devices.
    driver: [usize; 5],
    index: c_int,
    device: Mutex<Device>,
    /// One adapter per process: it owns the addresses. Locked while opening and closing.
    open: Mutex<Option<Open>>,
}

impl_object!(Dev, ibv_device);

// SAFETY: The structure is never written after creation.
unsafe impl Sync for Dev {}
// SAFETY: Its pointers are null.
unsafe impl Send for Dev {}

/// Devices ever listed, never freed: programs may keep devices beyond their list.
static DEVICES: Mutex<BTreeMap<String, &'static Dev>> = Mutex::new(BTreeMap::new());

struct Open {
    adapter: WeakContext,
    /// Address owned by another program.
    taken: Option<IpAddr>,
}

/// Retries without a listener: programs that start both sides at once (perftest) rely on a kernel's
/// slow address resolution.
const LISTEN_GRACE: Duration = Duration::from_millis(250);

/// Truncates; adds a NUL.
pub(crate) fn copy_text(to: &mut [c_char], text: &str) {
    let bytes = text.bytes().take(to.len() - 1).chain(std::iter::repeat(0));
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte as c_char);
}

/// Devices that the environment selects, or all; none if the environment is wrong.
pub(crate) fn all() -> Vec<&'static Dev> {
    static LOG: Once = Once::new();
    static REPORTED: Once = Once::new();
    LOG.call_once(|| {
        if let Err(error) = environment::init_log() {
            report::line(error);
        }
    });
    // parses faults too, to report their errors before opening
    let devices = OpenOptions::from_environment()
        .and_then(|_| environment::devices())
        .unwrap_or_else(|error| {
            REPORTED.call_once(|| report::line(error));
            Vec::new()
        });
    let mut known = DEVICES.lock();
    devices
        .into_iter()
        .enumerate()
        .map(|(index, device)| Dev::known(&mut known, index as c_int, device))
        .collect()
}

impl Dev {
    /// # Safety
    /// As for [`Object::trust`].
    pub(crate) unsafe fn listed<'a>(device: *const ibv_device, call: &str) -> Result<&'a Self> {
        // SAFETY: By the contract.
        let dev = unsafe { Self::trust(device) }?;
        devices::used(device as usize, call, || {
            dev.open.lock().as_ref().is_some_and(|open| open.adapter.upgrade().is_some())
        });
        Ok(dev)
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        DEVICES.lock().get(name).copied()
    }

    /// The device at a unique address, possibly unlisted.
    pub(crate) fn of(device: &Device) -> &'static Self {
        let mut known = DEVICES.lock();
        let index = known.len() as c_int;
        Self::known(&mut known, index, device.clone())
    }

    fn known(
        known: &mut BTreeMap<String, &'static Self>,
        index: c_int,
        device: Device,
    ) -> &'static Self {
        if let Some(&dev) = known.get(device.name()) {
            *dev.device.lock() = device;
            return dev;
        }
        let name = device.name().to_owned();
        let dev: &'static Self = Box::leak(Box::new(Self::new(index, device)));
        known.insert(name, dev);
        dev
    }

    fn new(index: c_int, device: Device) -> Self {
        let mut c = ibv_device::zeroed();
        (c.node_type, c.transport_type) = (IBV_NODE_CA, IBV_TRANSPORT_IB);
        copy_text(&mut c.name, device.name());
        copy_text(&mut c.dev_name, &format!("uverbs{index}"));
        copy_text(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
        copy_text(&mut c.ibdev_path, &format!("/sys/class/infiniband/{}", device.name()));
        let (device, open) = (Mutex::new(device), Mutex::default());
        Self { c: UnsafeCell::new(c), driver: [0; 5], index, device, open }
    }

    pub(crate) fn device(&self) -> Device {
        self.device.lock().clone()
    }

    /// GUID of the interface in network byte order, like a NIC's.
    pub(crate) fn guid(&self) -> u64 {
        u64::from_ne_bytes(
            self.device()
                .attributes(roce_provider::transport::adapter::Limits::default())
                .sys_image_guid
                .0,
        )
    }

    /// Opens the adapter once. Listing reports errors of the environment.
    pub(crate) fn open(&self) -> Result<Context, OpenError> {
        self.open_if(false)
    }

    /// Opens with the port down if another program owns the address: programs that scan devices
    /// continue.
    pub(crate) fn open_or_down(&self) -> Result<Context, OpenError> {
        self.open_if(true)
    }

    fn open_if(&self, may_be_down: bool) -> Result<Context, OpenError> {
        let device = self.device();
        let mut open = self.open.lock();
        let known = open.as_ref().and_then(|open| Some((open.adapter.upgrade()?, open.taken)));
        if let Some((adapter, lacks)) = known.filter(|(adapter, _)| adapter.is_of_this_process()) {
            return match lacks {
                Some(address) if !may_be_down => Err(OpenError::Bind(BindError::Taken(address))),
                _ => Ok(adapter),
            };
        }
        let options = || {
            let mut options = OpenOptions::from_environment()
                .map_err(|_| OpenError::NoSuchDevice(device.name().into()))?;
            options.cm.listen_grace = LISTEN_GRACE;
            options.equal_keys = !environment::is_on(environment::DISTINCT_KEYS) && !check::is_on();
            Ok::<_, OpenError>(options)
        };
        let (context, taken) = match device.open(options()?) {
            Err(OpenError::Bind(error)) if may_be_down => {
                let (BindError::Taken(address) | BindError::OtherUser { address, .. }) = error
                else {
                    return Err(OpenError::Bind(error));
                };
                report::line(format_args!("the port of {} is down: {error}", device.name()));
                (device.open_down(options()?)?, Some(address))
            }
            other => (other?, None),
        };
        *open = Some(Open { adapter: context.downgrade(), taken });
        Ok(context)
    }

    /// Opens wait until `handle`'s addresses are free.
    pub(crate) fn close<T>(&self, handle: T) {
        let _open = self.open.lock();
        drop(handle);
    }
}

calls!(
    fn ibv_get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
        second::warn();
        let all = all();
        if let Some(number) = number.as_mut() {
            *number = all.len() as c_int;
        }
        let pointers: Vec<*mut ibv_device> = all.iter().map(|dev| dev.c()).collect();
        let list = list::allocate(&pointers);
        devices::listed(list as usize, pointers.iter().map(|dev| *dev as usize));
        Ok(list)
    }
);

unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    devices::freed(list as usize);
    // SAFETY: From `ibv_get_device_list`, or null.
    unsafe { libc::free(list.cast()) };
}

unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: A listed device.
    match unsafe { Dev::listed(device, "ibv_get_device_name") } {
        // SAFETY: Its structure is never written again.
        Ok(dev) => unsafe { &raw const (*dev.c()).name }.cast(),
        Err(error) => {
            call::fail("ibv_get_device_name", &error);
            std::ptr::null()
        }
    }
}

unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    let _call = Call::begin();
    // SAFETY: A listed device.
    unsafe { Dev::listed(device, "ibv_get_device_guid") }.map_or(0, Dev::guid)
}

unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    let _call = Call::begin();
    // SAFETY: A listed device.
    unsafe { Dev::listed(device, "ibv_get_device_index") }.map_or(-1, |dev| dev.index)
}

export!(ibv_free_device_list, ibv_get_device_name, ibv_get_device_guid, ibv_get_device_index);
