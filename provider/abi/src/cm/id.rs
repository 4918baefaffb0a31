//! Ids.

use std::{
    cell::UnsafeCell,
    collections::BTreeMap,
    ffi::{c_int, c_uint, c_void},
    net::IpAddr,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use roce_provider::{
    cm::{CmId, IdState, PortSpace},
    transport::{addr::Gid, qp::QpType},
};

use super::{
    address,
    channel::{self, Channel},
    event,
    place::{self, DeviceAddr},
    queues::Template,
    resolve,
};
use crate::{
    errno::{self, Errno, Result},
    export::export,
    layout::{
        cm::{rdma_cm_id, rdma_event_channel},
        kernel::ibv_sa_path_rec,
    },
    object::Object,
};

/// An id as programs hold it.
#[repr(C)]
pub(super) struct Id {
    c: UnsafeCell<rdma_cm_id>,
    serial: u64,
    cm: Mutex<Option<CmId>>,
    pub(super) more: Mutex<More>,
    /// Where `route.path_rec` points.
    pub(super) path: UnsafeCell<ibv_sa_path_rec>,
}

/// What programs do not see of an id.
#[derive(Default)]
pub(super) struct More {
    /// It has no channel of the program's: its calls wait.
    pub(super) sync: bool,
    /// What an endpoint's address says is to be sent along first when it connects.
    pub(super) connect: Vec<u8>,
    /// Of a listening endpoint.
    pub(super) template: Option<Template>,
}

// SAFETY: `repr(C)`, and it starts with its cell.
unsafe impl Object for Id {
    type C = rdma_cm_id;
}

/// What is known of each id by its number, which the provider's id carries. Numbers are never used
/// again.
#[derive(Default)]
struct Known {
    /// The program's pointer.
    id: usize,
    /// Events that the program has taken and not acknowledged.
    events: u32,
    groups: BTreeMap<IpAddr, Group>,
}

/// A multicast group of an id.
#[derive(Default)]
pub(super) struct Group {
    /// What the program gave when it joined, to be told with its events.
    pub(super) context: usize,
    /// Whether its queue pair is attached when it has joined.
    pub(super) receives: bool,
    events: u32,
}

static KNOWN: Mutex<BTreeMap<u64, Known>> = Mutex::new(BTreeMap::new());
/// An event was acknowledged.
static ACKNOWLEDGED: Condvar = Condvar::new();

fn known() -> MutexGuard<'static, BTreeMap<u64, Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an id until the event that was taken is acknowledged.
pub(super) struct Taken {
    pub(super) id: *mut rdma_cm_id,
    serial: u64,
    group: Option<IpAddr>,
    /// Of an event of a group.
    pub(super) context: usize,
    pub(super) receives: bool,
}

impl Taken {
    /// An event of this id, and of one of its groups, is taken. `None` when the program is
    /// destroying the id, or has left the group.
    pub(super) fn new(id: &CmId, group: Option<IpAddr>) -> Option<Self> {
        let serial = id.user_data();
        let mut known = known();
        let known = known.get_mut(&serial)?;
        let mut taken =
            Self { id: known.id as *mut rdma_cm_id, serial, group, context: 0, receives: false };
        if let Some(ip) = group {
            let group = known.groups.get_mut(&ip)?;
            (taken.context, taken.receives) = (group.context, group.receives);
            group.events += 1;
        }
        known.events += 1;
        Some(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(known) = known().get_mut(&self.serial) {
            known.events -= 1;
            if let Some(group) = self.group.and_then(|group| known.groups.get_mut(&group)) {
                group.events -= 1;
            }
        }
        ACKNOWLEDGED.notify_all();
    }
}

/// Whether there are any ids. Does not wait for the answer: if something is under way there are.
pub(super) fn are_some() -> bool {
    KNOWN.try_lock().map_or(true, |known| !known.is_empty())
}

/// Ends all ids, of which programs still hold the pointers. A forked child's copies of its parent's
/// ids say nothing to peers.
pub(super) fn end_all() {
    let ids: Vec<usize> = known().values().map(|known| known.id).collect();
    for id in ids {
        // SAFETY: It was there, and a program that destroys ids in its last moments, in other
        // threads, is at fault.
        let cm = unsafe { Id::get(id as *const rdma_cm_id) }.map(|id| id.lock_cm().take());
        drop(cm);
    }
}

/// Waits until `done` says so of what is known of an id.
fn wait(serial: u64, done: impl Fn(&Known) -> bool) -> MutexGuard<'static, BTreeMap<u64, Known>> {
    let waits =
        |known: &mut BTreeMap<u64, Known>| known.get(&serial).is_some_and(|known| !done(known));
    ACKNOWLEDGED.wait_while(known(), waits).unwrap_or_else(PoisonError::into_inner)
}

/// `enum rdma_port_space`.
pub(super) fn port_space(number: c_uint) -> Result<PortSpace> {
    PortSpace::ALL
        .into_iter()
        .find(|&space| space as c_uint == number)
        .ok_or(Errno(libc::EPROTONOSUPPORT))
}

const fn qp_type_number(qp_type: QpType) -> c_uint {
    match qp_type {
        QpType::Rc => 2,
        QpType::Uc => 3,
        QpType::Ud => 4,
        QpType::XrcInitiator => 9,
        QpType::XrcTarget => 10,
    }
}

impl Id {
    /// Hands an id to the program, with a channel of its own if it gets none.
    pub(super) fn hand_out_new(
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
        c.qp_type = qp_type_number(cm.qp_type());
        let id = Self {
            c: UnsafeCell::new(c),
            serial,
            cm: Mutex::new(Some(cm.clone())),
            more: Mutex::default(),
            path: UnsafeCell::new(ibv_sa_path_rec::zeroed()),
        };
        let id = id.hand_out();
        known().insert(serial, Known { id: id as usize, ..Known::default() });
        cm.set_user_data(serial);
        id
    }

    /// The provider's side of it.
    pub(super) fn cm(&self) -> Result<CmId> {
        self.lock_cm().clone().ok_or(Errno::INVAL)
    }

    fn lock_cm(&self) -> MutexGuard<'_, Option<CmId>> {
        self.cm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn more(&self) -> MutexGuard<'_, More> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_sync(&self) -> bool {
        self.more().sync
    }

    /// The program joins a group.
    pub(super) fn enter(&self, ip: IpAddr, context: usize, receives: bool) {
        if let Some(known) = known().get_mut(&self.serial) {
            known.groups.insert(ip, Group { context, receives, events: 0 });
        }
    }

    /// The program leaves a group; waits until its events are acknowledged. What the group was
    /// like.
    pub(super) fn leave(&self, ip: IpAddr) -> Option<Group> {
        let mut known =
            wait(self.serial, |known| known.groups.get(&ip).is_none_or(|group| group.events == 0));
        known.get_mut(&self.serial)?.groups.remove(&ip)
    }

    /// Writes what is known of its device and its addresses to where programs see it.
    pub(super) fn fill(&self) -> Result<()> {
        let cm = self.cm()?;
        let c = self.c();
        // SAFETY: The structure is ours; programs do not look at it while they are in a call that
        // changes it.
        let c = unsafe { &mut *c };
        // To the kernel a loopback address stands for all, as long as there is no peer: programs
        // that are bound to one have no device yet. Some rely on that (libfabric takes "localhost"
        // for any address).
        let is_any = matches!(cm.state(), IdState::Bound | IdState::Listening)
            && cm.local_addr().is_some_and(|local| local.ip().is_loopback());
        if let Some(context) = cm.context().filter(|_| !is_any) {
            let DeviceAddr { verbs, pd } = place::of(&context)?;
            c.verbs = verbs;
            if c.pd.is_null() {
                c.pd = pd;
            }
            c.port_num = 1;
            c.route.addr.addr.pkey = context.query_pkey(0).unwrap_or_default().0.to_be();
        }
        if let Some(local) = cm.local_addr() {
            c.route.addr.src_addr = address::write(local).0;
            if !local.ip().is_unspecified() {
                c.route.addr.addr.sgid.raw = Gid::from(local.ip()).0;
            }
        }
        if let Some(peer) = cm.peer_addr() {
            c.route.addr.dst_addr = address::write(peer).0;
            c.route.addr.addr.dgid.raw = Gid::from(peer.ip()).0;
        }
        if matches!(cm.state(), IdState::RouteResolved | IdState::RequestReceived) {
            // SAFETY: As above.
            unsafe { *self.path.get() = resolve::path(&cm, c) };
            c.route.path_rec = self.path.get();
            c.route.num_paths = 1;
        }
        Ok(())
    }
}

/// Makes an id; without a channel of the program's, one whose calls wait.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: PortSpace,
    qp_type: Option<QpType>,
) -> Result<*mut rdma_cm_id> {
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    let cm = Channel::get(channel)?.channel.create_id(port_space);
    if let Some(Err(error)) = qp_type.map(|qp_type| cm.set_qp_type(qp_type)) {
        if sync {
            channel::destroy(channel);
        }
        return Err(error.into());
    }
    let id = Id::hand_out_new(&cm, channel, context);
    Id::get(id)?.more().sync = sync;
    Ok(id)
}

/// Destroys an id: nothing more is heard of it, and once the program has acknowledged what it was
/// told, it goes.
pub(super) unsafe fn destroy(id: *mut rdma_cm_id) -> Result<()> {
    let object = Id::get(id)?;
    let cm = object.lock_cm().take();
    drop(cm); // outside the lock
    event::acknowledge_last(id);
    wait(object.serial, |known| known.events == 0).remove(&object.serial);
    let sync = object.is_sync();
    let channel = (*id).channel;
    drop(Id::take_back(id));
    if sync {
        channel::destroy(channel);
    }
    Ok(())
}

unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: c_uint,
) -> c_int {
    errno::minus_one(port_space(space).and_then(|space| {
        *id.as_mut().ok_or(Errno::INVAL)? = create(channel, context, space, None)?;
        Ok(())
    }))
}

/// Waits until the program has acknowledged every event of the id that it has taken.
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    errno::minus_one(destroy(id))
}

pub(super) unsafe fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> Result<()> {
    let object = Id::get(id)?;
    let was_sync = object.is_sync();
    if was_sync && channel.is_null() {
        return Err(Errno::INVAL);
    }
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    object.cm()?.migrate_id(&Channel::get(channel)?.channel);
    if was_sync {
        event::acknowledge_last(id);
    }
    drop(wait(object.serial, |known| known.events == 0));
    if was_sync {
        channel::destroy((*id).channel);
    }
    object.more().sync = sync;
    (*id).channel = channel;
    Ok(())
}

/// Waits until the program has acknowledged what it has taken from the old channel.
unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    errno::minus_one(migrate(id, channel))
}

export!(rdma_create_id, rdma_destroy_id, rdma_migrate_id);
