//! An in-process network with chosen faults and without sockets.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    time::Instant,
};
use rustix::event::{EventfdFlags, eventfd};

use super::{Datagram, Link, MulticastLink, Preparation, Prepared};
use crate::{
    bind::BindError,
    fabric::{Delivery, FaultPlan, Faults, Network, QueueCounters},
    sync::Mutex,
};

/// Most queued datagrams per device; more are lost.
const INBOX: usize = 65_536;

/// A network for any number of devices of this process.
///
/// ```
/// use roce_provider::{OpenOptions, link::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fabric = Fabric::new("drop every 10, delay 50us".parse()?, 1);
/// let one = fabric.open("10.0.0.1".parse()?, OpenOptions::default())?;
/// let two = fabric.open("10.0.0.2".parse()?, OpenOptions::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    network: Network,
    nodes: BTreeMap<IpAddr, Node>,
}

struct Node {
    inbox: VecDeque<Delivery>,
    groups: BTreeSet<IpAddr>,
    descriptor: Arc<OwnedFd>,
}

impl Fabric {
    /// Creates a network with these faults. Equal seeds and datagrams give equal faults.
    #[must_use]
    pub fn new(plan: FaultPlan, seed: u64) -> Self {
        let shared = Shared { network: Network::with_plan(plan, seed), nodes: BTreeMap::new() };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Creates a link with this address.
    ///
    /// # Errors
    /// [`BindError::Taken`]; [`BindError::System`] without descriptors.
    pub fn link(&self, address: IpAddr) -> Result<FabricLink, BindError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = eventfd(0, flags)
            .map_err(|error| BindError::System { address, source: error.into() })?;
        let descriptor = Arc::new(descriptor);
        let mut shared = self.shared.lock();
        if shared.nodes.contains_key(&address) {
            return Err(BindError::Taken(address));
        }
        let (inbox, groups) = (VecDeque::new(), BTreeSet::new());
        shared.nodes.insert(address, Node { inbox, groups, descriptor: descriptor.clone() });
        drop(shared);
        Ok(FabricLink { fabric: self.clone(), address, descriptor })
    }

    /// Reads or changes the network's faults.
    pub fn with_faults<R>(&self, act: impl FnOnce(&mut Faults) -> R) -> R {
        act(self.shared.lock().network.faults_mut())
    }

    /// Counters of the port toward this address (the plan's `rate`); `None`: of all.
    #[must_use]
    pub fn port(&self, to: Option<IpAddr>) -> QueueCounters {
        self.shared.lock().network.port(to)
    }

    /// Counters of the receive buffer there (the plan's `receiver`); `None`: of all.
    #[must_use]
    pub fn receive_buffer(&self, at: Option<IpAddr>) -> QueueCounters {
        self.shared.lock().network.receive_buffer(at)
    }
}

opaque_debug!(Fabric);

impl Shared {
    fn deliver(&mut self, now: Instant) {
        while let Some(datagram) = self.network.poll_deliver(now) {
            let to = datagram.net.dst;
            if to.is_multicast() {
                for node in self.nodes.values_mut().filter(|node| node.groups.contains(&to)) {
                    node.put(datagram.clone());
                }
            } else if let Some(node) = self.nodes.get_mut(&to) {
                node.put(datagram);
            }
        }
    }
}

impl Node {
    fn put(&mut self, datagram: Delivery) {
        if self.inbox.len() < INBOX {
            self.inbox.push_back(datagram);
            let _ = rustix::io::write(&*self.descriptor, &1u64.to_ne_bytes()); // full: readable
        }
    }
}

/// Link of a device on a [`Fabric`].
#[derive(Debug)]
pub struct FabricLink {
    fabric: Fabric,
    address: IpAddr,
    descriptor: Arc<OwnedFd>,
}

impl Drop for FabricLink {
    fn drop(&mut self) {
        self.fabric.shared.lock().nodes.remove(&self.address);
    }
}

impl Link for FabricLink {
    fn addresses(&self) -> Vec<IpAddr> {
        vec![self.address]
    }

    fn limits(&self) -> TransmitLimits {
        TransmitLimits { segments: 64, bytes: 65_507 }
    }

    fn source_port(&self) -> SourcePort {
        SourcePort::PerFlow
    }

    fn receive_buffer(&self) -> Option<usize> {
        let shared = self.fabric.shared.lock();
        shared.network.faults().conditions().receiver.map(|receiver| receiver.room())
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        let mut shared = self.fabric.shared.lock();
        for (net, payload) in runs.iter().flat_map(|run| run.datagrams(bytes)) {
            shared.network.send(now, &net, payload);
        }
        shared.deliver(now);
        Ok(runs.len())
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        let inbox = {
            let mut shared = self.fabric.shared.lock();
            let _ = rustix::io::read(&*self.descriptor, &mut [0; 8]);
            shared.deliver(now);
            let node = shared.nodes.get_mut(&self.address);
            node.map(|node| std::mem::take(&mut node.inbox)).unwrap_or_default()
        };
        for delivery in &inbox {
            sink(&delivery.datagram());
        }
        Ok(inbox.len())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.descriptor.as_fd()]
    }

    fn deadline(&self) -> Option<Instant> {
        self.fabric.shared.lock().network.poll_timeout()
    }

    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        Some(self)
    }
}

impl MulticastLink for FabricLink {
    fn prepare_join(&mut self, _group: IpAddr) -> Preparation<io::Error> {
        Box::new(|| Ok(Box::new(())))
    }

    fn join(&mut self, group: IpAddr, _prepared: Prepared) -> io::Result<()> {
        let mut shared = self.fabric.shared.lock();
        let node = shared.nodes.get_mut(&self.address).ok_or(io::ErrorKind::NotConnected)?;
        node.groups.insert(group);
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> Option<Prepared> {
        if let Some(node) = self.fabric.shared.lock().nodes.get_mut(&self.address) {
            node.groups.remove(&group);
        }
        None
    }
}
