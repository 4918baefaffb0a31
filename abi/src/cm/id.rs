use std::{
    cell::UnsafeCell,
    sync::{
        MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use roce_provider::{
    cm::{CmId, IdState, PortSpace},
    transport::addr::Gid,
};

use super::{
    address,
    addrinfo::Addresses,
    device_addr::{self, DeviceAddr},
    registry,
};
use crate::{
    objects::object::impl_object,
    prelude::*,
    sync::Mutex,
    translate::{mtu, qp::type_to_c},
};

#[repr(C)]
pub(super) struct Id {
    c: UnsafeCell<rdma_cm_id>,
    /// Number in the [registry].
    pub(super) serial: u64,
    cm: Mutex<Option<CmId>>,
    settings: Mutex<Settings>,
    /// Target of `route.path_rec`.
    path: UnsafeCell<ibv_sa_path_rec>,
}

#[derive(Default)]
pub(super) struct Settings {
    /// True without a channel: calls block.
    pub(super) sync: bool,
    /// Private data of an endpoint's address, sent first.
    pub(super) connect: Vec<u8>,
    /// For a listening endpoint.
    pub(super) template: Option<QpTemplate>,
    pub(super) addresses: Addresses,
}

#[derive(Clone, Copy)]
pub(super) struct QpTemplate(pub(super) ibv_qp_init_attr);

// SAFETY: The program keeps the pointed-to objects, all thread-safe, longer than the endpoint.
unsafe impl Send for QpTemplate {}

impl_object!(Id, rdma_cm_id);

pub(super) fn port_space(number: c_uint) -> Result<PortSpace> {
    PortSpace::ALL
        .into_iter()
        .find(|&space| space as c_uint == number)
        .ok_or(Errno::of(Rule::PortSpace))
}

impl Id {
    pub(super) fn create_raw(
        cm: &CmId,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
    ) -> *mut rdma_cm_id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut c = rdma_cm_id::zeroed();
        c.channel = channel;
        c.context = context;
        c.ps = cm.port_space() as c_uint;
        c.qp_type = type_to_c(cm.qp_type());
        let id = Self {
            c: UnsafeCell::new(c),
            serial,
            cm: Mutex::new(Some(cm.clone())),
            settings: Mutex::default(),
            path: UnsafeCell::new(ibv_sa_path_rec::zeroed()),
        };
        let id = id.into_raw();
        registry::insert(serial, id);
        cm.set_user_data(serial);
        id
    }

    pub(super) fn cm(&self) -> Result<CmId> {
        self.cm.lock().clone().ok_or(Errno::of(Rule::IdWithoutDevice))
    }

    pub(super) fn take_cm(&self) -> Option<CmId> {
        self.cm.lock().take()
    }

    pub(super) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock()
    }

    pub(super) fn is_sync(&self) -> bool {
        self.settings().sync
    }

    /// Fills in the known device and addresses.
    pub(super) fn fill(&self) -> Result<()> {
        let cm = self.cm()?;
        // shared with the program: access members only
        let c = self.c();
        // As in the kernel, a loopback address without a peer is a wildcard without a device:
        // libfabric uses "localhost" for any address.
        let is_any = matches!(cm.state(), IdState::Bound | IdState::Listening)
            && cm.local_addr().is_some_and(|local| local.ip().is_loopback());
        let device = cm.context().filter(|_| !is_any);
        let shared = device.as_ref().map(device_addr::of).transpose()?;
        // SAFETY: No other call on this id changes the structure meanwhile.
        unsafe {
            if let (Some(DeviceAddr { verbs, pd }), Some(context)) = (shared, device) {
                (*c).verbs = verbs;
                if (*c).pd.is_null() {
                    (*c).pd = pd;
                }
                (*c).port_num = 1;
                (*c).route.addr.addr.pkey = context.query_pkey(0).unwrap_or_default().0.to_be();
            }
            if let Some(local) = cm.local_addr() {
                (*c).route.addr.src_addr = address::write(local).0;
                if !local.ip().is_unspecified() {
                    (*c).route.addr.addr.sgid.raw = Gid::from(local.ip()).0;
                }
            }
            if let Some(peer) = cm.peer_addr() {
                (*c).route.addr.dst_addr = address::write(peer).0;
                (*c).route.addr.addr.dgid.raw = Gid::from(peer.ip()).0;
            }
            if matches!(cm.state(), IdState::RouteResolved | IdState::RequestReceived) {
                self.path.get().write(path(&cm, (*c).route.addr.addr));
                (*c).route.path_rec = self.path.get();
                (*c).route.num_paths = 1;
            }
        }
        Ok(())
    }
}

/// Lifetime 4.096 µs · 2^16, the kernel's on Ethernet.
const LIFE_TIME: u8 = 16;
const EXACTLY: u8 = 2;

fn path(cm: &CmId, addr: rdma_ib_addr) -> ibv_sa_path_rec {
    let setup = cm.qp_setup(); // a request's
    let av = setup.map(|setup| setup.av).or_else(|| cm.address_vector());
    let (flow_label, traffic_class, hop_limit) =
        av.map_or((0, 0, 0), |av| (av.flow_label, av.traffic_class, av.hop_limit));
    let mtu = setup.and_then(|setup| setup.path_mtu).unwrap_or_else(|| cm.path_mtu());
    ibv_sa_path_rec {
        dgid: addr.dgid,
        sgid: addr.sgid,
        flow_label: flow_label.to_be(),
        hop_limit,
        traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: addr.pkey,
        mtu_selector: EXACTLY,
        mtu: mtu::to_c(mtu) as u8,
        rate_selector: EXACTLY,
        rate: rate(cm.context().and_then(|context| context.query_port().speed)),
        packet_life_time_selector: EXACTLY,
        packet_life_time: LIFE_TIME,
        ..ibv_sa_path_rec::zeroed()
    }
}

/// Rate code from Mbit/s, rounded like the kernel; 0: the port's.
const fn rate(mbps: Option<u32>) -> u8 {
    match mbps {
        Some(40_000..) => 7,
        Some(30_000..) => 4,
        Some(20_000..) => 6,
        Some(10_000..) => 3,
        Some(_) | None => 0,
    }
}
