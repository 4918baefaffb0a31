use std::{
    os::fd::BorrowedFd,
    sync::{Arc, Weak, atomic::AtomicUsize},
    time::Duration,
};

use roce_transport::{
    adapter::{Limits, ObjectError, PKeyTable},
    addr::{Gid, Mtu, PKey, RoceVersion},
    event::Counters,
    explain::Explain,
    psn::Psn,
    time::Instant,
};

use super::{clock::ClockValues, device_attr::DeviceAttr, shards::Shards, sink::AsyncQueue};
use crate::{
    clock,
    counters::LinkCounters,
    engine::Engine,
    port::{GidEntry, GidType, PortAttr},
};

/// Open device (`ibv_context`), closed with its last handle; its objects hold handles.
///
/// ```
/// # use roce_provider::{Device, OpenOptions};
/// let context = Device::named("roce_lo")?.open(OpenOptions::default())?;
/// assert!(context.query_port().active);
/// println!("{}: up to {} queue pairs", context.name(), context.limits().max_qp);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

/// Weak handle of a device.
#[derive(Clone, derive_more::Debug)]
#[debug("WeakContext {{ is_open: {:?} }}", self.is_open())]
pub struct WeakContext(Weak<ContextInner>);

impl WeakContext {
    /// The device, if open.
    #[must_use]
    pub fn upgrade(&self) -> Option<Context> {
        self.0.upgrade().map(|inner| Context { inner })
    }

    pub(crate) fn is(&self, context: &Context) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&context.inner))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

pub(crate) struct ContextInner {
    /// First shard's engine.
    pub(crate) engine: Arc<Engine>,
    pub(crate) shards: Shards,
    pub(crate) events: Arc<AsyncQueue>,
    pub(crate) name: String,
    /// Attributes at opening.
    pub(crate) port: PortAttr,
    pub(crate) attr: DeviceAttr,
    /// Bytes of device memory in use.
    pub(crate) device_memory: AtomicUsize,
    /// Grace for late peers on this host (`CmConfig::listen_grace`), on an interface.
    pub(crate) host_grace: Option<Duration>,
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // in reverse: the first may receive for all
        self.shards.engines().rev().for_each(|engine| engine.stop());
        tracing::debug!(device = self.name, "device closed");
    }
}

impl Context {
    /// Explains an error, if enabled. Call without the engine's lock.
    pub(crate) fn explained<T, E: Explain>(
        &self,
        call: &str,
        result: Result<T, E>,
    ) -> Result<T, E> {
        if let (Err(error), Some(diagnosis)) = (&result, &self.inner.engine.diagnosis) {
            diagnosis.report_call(None, call, error.explain());
        }
        result
    }

    /// Refuses another device.
    pub(crate) fn check_own(&self, other: &Self) -> Result<(), ObjectError> {
        let is_own = Arc::ptr_eq(&self.inner, &other.inner);
        if is_own { Ok(()) } else { Err(ObjectError::Unknown) }
    }

    /// Device name (`ibv_get_device_name`).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Weak handle.
    #[must_use]
    pub fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.inner))
    }

    /// False in a forked child: inherited devices move no packets, and can only be queried and
    /// dropped.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.inner.engine.is_of_this_process()
    }

    /// Device attributes (`ibv_query_device_ex`).
    #[must_use]
    pub fn query_device(&self) -> DeviceAttr {
        self.inner.attr
    }

    /// Present port attributes (`ibv_query_port`).
    #[must_use]
    pub fn query_port(&self) -> PortAttr {
        let counters = self.counters();
        let mut shard = self.inner.engine.lock();
        let adapter = shard.adapter();
        PortAttr {
            active: adapter.port_is_active(),
            active_mtu: adapter.gids().port_mtu(),
            bad_pkeys: counters.pkey_violations,
            qkey_violations: counters.qkey_violations,
            pkey_table_len: adapter.pkeys().entries().len() as u16,
            ..self.inner.port
        }
    }

    /// Limits of [`query_device`](Self::query_device).
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.inner.attr.limits
    }

    /// GID table; unused entries are zero. An entry keeps its index while the interface has the
    /// address.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.inner.engine.lock().adapter().gids().entries().to_vec()
    }

    /// GID, zero if unused (`ibv_query_gid`); `None` beyond the table (`EINVAL`).
    #[must_use]
    pub fn query_gid(&self, index: u16) -> Option<Gid> {
        let entry = self.gids().get(usize::from(index)).copied();
        entry.or_else(|| (index < self.inner.port.gid_table_len).then(Gid::default))
    }

    /// Used GID entries (`ibv_query_gid_table`).
    #[must_use]
    pub fn query_gid_table(&self) -> Vec<GidEntry> {
        let interface = self.inner.engine.interface();
        let entry = |(index, gid)| GidEntry {
            gid,
            index,
            port: 1,
            gid_type: self.gid_type(index),
            interface,
        };
        (0..).zip(self.gids()).filter(|(_, gid)| !gid.is_zero()).map(entry).collect()
    }

    /// Packet type of a GID (`ibv_query_gid_type`).
    #[must_use]
    pub fn gid_type(&self, index: u16) -> GidType {
        match self.inner.engine.lock().adapter().gids().version(index) {
            RoceVersion::V1 => GidType::RoceV1,
            RoceVersion::V2 => GidType::RoceV2,
        }
    }

    /// Index of the first usable GID that matches.
    pub(crate) fn find_gid(&self, is_it: impl FnMut(Gid) -> bool) -> Option<u16> {
        self.inner.engine.lock().adapter().gids().position(is_it)
    }

    /// P_Key at an index (`ibv_query_pkey`); `None` beyond the table. Unused: 0 or 0x8000.
    #[must_use]
    pub fn query_pkey(&self, index: u16) -> Option<PKey> {
        self.inner.engine.lock().adapter().pkeys().entries().get(usize::from(index)).copied()
    }

    /// Index of the first matching P_Key (`ibv_get_pkey_index`).
    #[must_use]
    pub fn find_pkey(&self, pkey: PKey) -> Option<u16> {
        self.inner.engine.lock().adapter().pkeys().find(pkey)
    }

    /// Replaces the P_Key table, as a subnet manager would, with an event. Queue pairs keep their
    /// index.
    ///
    /// # Errors
    /// [`ObjectError::InUse`] (`EBUSY`) if a queue pair uses a removed entry; nothing changes.
    pub fn set_pkeys(&self, pkeys: PKeyTable) -> Result<(), ObjectError> {
        let held = self.inner.shards.hold();
        let before = self.inner.engine.lock().adapter().pkeys().clone();
        let set = |keys: PKeyTable| {
            let mut engines = self.inner.shards.engines();
            engines.try_for_each(|it| it.command(|adapter, _| adapter.set_pkeys(keys.clone())))
        };
        let result = set(pkeys).inspect_err(|_| _ = set(before));
        drop(held);
        self.explained("set_pkeys", result)
    }

    /// Present MTU of the port.
    #[must_use]
    pub fn active_mtu(&self) -> Mtu {
        self.inner.engine.lock().adapter().gids().port_mtu()
    }

    /// Reads the timestamp clock and the time of day at once (`ibv_query_rt_values_ex`).
    #[must_use]
    pub fn query_clock(&self) -> ClockValues {
        let (raw, wall) = clock::both();
        ClockValues { raw, wall }
    }

    /// Transport totals since opening.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut totals = Counters::default();
        for engine in self.inner.shards.engines() {
            totals += engine.lock().adapter().counters();
        }
        totals
    }

    /// Link totals since opening.
    #[must_use]
    pub fn link_counters(&self) -> LinkCounters {
        let mut totals = LinkCounters::default();
        for engine in self.inner.shards.engines() {
            totals += engine.lock().link_counters();
        }
        totals
    }

    /// Random first PSN.
    #[must_use]
    pub fn random_psn(&self) -> Psn {
        self.inner.engine.lock().adapter().random_psn()
    }

    /// Number of connections and SIDR requests, including TIMEWAIT.
    #[must_use]
    pub fn cm_count(&self) -> usize {
        self.inner.engine.lock().adapter().cm().count()
    }

    /// Receives, handles and sends on this thread, for
    /// [`Progress::Manual`](crate::Progress::Manual).
    pub fn progress(&self) {
        self.inner.shards.engines().for_each(|engine| _ = engine.progress());
    }

    /// Time until [`progress`](Self::progress) is due even if [`progress_fd`](Self::progress_fd) is
    /// not readable; `None` if no timer runs.
    #[must_use]
    pub fn progress_timeout(&self) -> Option<Duration> {
        let deadline: Option<Instant> = self.inner.engine.deadline();
        deadline.map(|deadline| deadline.since(clock::now()))
    }

    /// Readable when [`progress`](Self::progress) has work.
    #[must_use]
    pub fn progress_fd(&self) -> BorrowedFd<'_> {
        self.inner.engine.sockets()
    }
}

opaque_debug!(Context, |this| name: this.inner.name);
