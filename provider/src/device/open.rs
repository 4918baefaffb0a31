//! Opening a device on a link per shard.

use std::{
    mem,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use roce_transport::{
    adapter::{Adapter, AdapterConfig, RoceV1},
    addr::Gid,
    event::Event,
    share::IdPartition,
};
use tracing::debug;

use super::{OpenError, OpenOptions, about_peer, contexts, readers::Readers};
use crate::{
    diagnosis::{Diagnosis, Errnos, Found},
    engine::{CounterSink, Engine, EngineParts, EventSink, Sinks},
    fabric::FaultPlan,
    faults::live::{self, CountedPlan},
    link::{FaultyLink, Link},
    port::{GidLayout, GidPlaces, PortAttr, Watch},
    profile::Profile,
    verbs::{
        AsyncQueue, Context, ContextInner, DeviceAttr, DeviceCaps, Guid, ObjectEvents, Shards,
    },
};

#[derive(Default)]
pub(super) struct ShardParts {
    pub(super) watch: Option<Watch>,
    pub(super) publishers: Vec<Box<dyn CounterSink>>,
    pub(super) sys_image_guid: Guid,
    /// Layout of the GID table; by default the profile's.
    pub(super) layout: Option<GidLayout>,
}

/// With one shard.
pub(super) fn open_link(
    name: String,
    port: PortAttr,
    link: Box<dyn Link>,
    parts: ShardParts,
    options: OpenOptions,
) -> Result<Context, OpenError> {
    let mut opening = Opening::new(name, port, options)?;
    opening.start(link, parts)?;
    Ok(opening.finish())
}

/// Device being opened, shard by shard.
pub(super) struct Opening {
    name: String,
    port: PortAttr,
    pub(super) options: OpenOptions,
    faults: CountedPlan,
    readers: Readers,
    events: Arc<AsyncQueue>,
    started: Vec<Arc<Engine>>,
    first: Option<First>,
}

/// Device values fixed by the first shard.
struct First {
    attr: DeviceAttr,
    host_grace: Option<Duration>,
    places: GidPlaces,
}

/// Explains failures of port and device; queue pairs are explained from their record.
impl EventSink for Option<Arc<Found>> {
    fn on_event(&mut self, event: Event, _: &mut Adapter, _: &mut dyn Link) {
        if let (Event::PortError | Event::DeviceFatal, Some(found)) = (event, &*self) {
            found.add_event(event);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.started.iter().rev().for_each(|engine| engine.stop()); // a shard failed to start
    }
}

impl Opening {
    pub(super) fn new(
        name: String,
        port: PortAttr,
        mut options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let (observer, trace) = (options.observer.take(), mem::take(&mut options.trace));
        let readers = Readers::new(&name, options.pcap.take(), observer, trace)?;
        if let Some(profile) = &options.profile {
            options.limits = profile.limits(options.limits);
        }
        let port = options.profile.as_ref().map_or(port, |profile| profile.port(port));
        Ok(Self {
            faults: (&options.faults).into(),
            name,
            port,
            options,
            readers,
            events: Arc::new(AsyncQueue::new(|_| true)?),
            started: Vec::new(),
            first: None,
        })
    }

    pub(super) fn start(
        &mut self,
        link: Box<dyn Link>,
        parts: ShardParts,
    ) -> Result<(), OpenError> {
        let Self { name, port, options, faults, readers, .. } = &*self;
        let index = self.started.len() as u8;
        let OpenOptions { fault_seed, profile, cm, .. } = options;
        let ShardParts { watch, publishers, sys_image_guid, layout } = parts;
        let mut link = if faults.plan == FaultPlan::default() && !live::is_on() {
            link
        } else {
            let seed = fault_seed.wrapping_add(index.into());
            Box::new(FaultyLink::new(link, faults.clone(), seed))
        };
        let mut seed = options.random_seed()?;
        seed[31] ^= index; // distinct random numbers
        let write_only_packets = options.write_only_packets.unwrap_or_default();
        let host_grace = watch.is_some().then_some(cm.listen_grace);
        let partition = link.sharing().and_then(|sharing| sharing.partition());
        let addresses = format!("{:?}", link.addresses());
        let mut config = AdapterConfig {
            port_mtu: port.active_mtu,
            source_port: link.source_port(),
            read_budget: link.receive_buffer().map_or(u64::MAX, |bytes| bytes as u64 / 2),
            equal_keys: options.equal_keys,
            write_only_packets: write_only_packets.try_into().unwrap_or(u32::MAX),
            congestion: options.congestion,
            late: options.late,
            pkeys: options.pkeys.clone(),
            limits: options.limits,
            cm: cm.clone(),
            ..AdapterConfig::new(seed)
        };
        config.cm.tells_records = link.sharing().is_some();
        if let Some(partition) = partition {
            (config.qpns, config.cm.ids) = (partition.qpns(), partition.ids());
        }
        let node_guid = Guid(config.guid.to_be_bytes());
        let explain = options.explain;
        let text = |key| profile.as_ref().and_then(|profile| profile.text(key));
        let errnos = Errnos {
            objects: text("errno.objects"),
            missing: text("errno.missing"),
            sizes: text("errno.sizes"),
        };
        let mut trace = readers.trace();
        let diagnosis = explain
            .map(|format| Diagnosis::new(format, name, about_peer::about_peer, errnos, &mut trace));
        let mut adapter = Adapter::with_trace(config, trace);
        adapter.set_port(port.active, port.active_mtu);
        // only a device's own table has the IPv4 slot that programs expect
        let is_device = layout.is_some();
        let layout = layout.unwrap_or_else(|| {
            profile.as_ref().map_or_else(GidLayout::default, Profile::gid_layout)
        });
        adapter.set_roce_v1(layout.v1);
        let own = link.addresses();
        let is_plain = layout.v1 == RoceV1::Absent && !is_device;
        let taken = own.iter().filter(|_| is_plain).map(|&ip| Gid::from(ip)).collect();
        let new_places = || GidPlaces::new(layout, taken);
        let places = self.first.as_ref().map_or_else(new_places, |first| first.places.clone());
        adapter.set_gids(places.table(own));
        for address in link.addresses() {
            adapter.set_flow_ports(address, link.flow_ports(address));
            adapter.set_control_port(address, link.control_port(address));
        }
        while adapter.poll_event().is_some() {} // drops the initial events
        let mut attr = DeviceAttr::new(*adapter.limits(), node_guid, sys_image_guid);
        profile.iter().for_each(|profile| profile.apply(&mut attr));
        let frame_mtu = link.frames().map(|link| link.mtu());
        adapter.carry_frames(frame_mtu);
        if frame_mtu.is_none() {
            attr.device_cap_flags.remove(DeviceCaps::MANAGED_FLOW_STEERING);
        } else if profile.is_none() {
            attr.device_cap_flags.insert(DeviceCaps::MANAGED_FLOW_STEERING);
        }
        adapter.limit_rd_atomic(attr.max_qp_init_rd_atom, attr.max_qp_rd_atom);
        let mut sinks = Sinks::default();
        let events = sinks.of::<ObjectEvents>();
        events.add_reader(&self.events);
        if index > 0 {
            events.ignore_port_events();
        }
        *sinks.of::<Option<Arc<Found>>>() = diagnosis.as_ref().map(|it| it.found.clone());
        let observer = readers.observer();
        let parts = EngineParts {
            name: name.clone(),
            adapter,
            places: places.clone(),
            link,
            observer,
            sinks,
            watch,
            publishers,
            diagnosis,
        };
        let engine = Engine::start(parts, options.progress)?;
        debug!(
            device = self.name,
            shard = index,
            addresses,
            mtu = self.port.active_mtu.bytes(),
            partition = partition.map(IdPartition::get),
            "device opened"
        );
        self.first.get_or_insert(First { attr, host_grace, places });
        self.started.push(engine);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Context {
        let mut engines = mem::take(&mut self.started).into_iter();
        let (Some(engine), Some(first)) = (engines.next(), self.first.take()) else {
            unreachable!("no shard was started")
        };
        let shards = Shards::new(engine.clone(), engines.collect());
        let First { mut attr, host_grace, .. } = first;
        if shards.are_several() {
            attr.device_cap_flags.remove(DeviceCaps::MEM_WINDOW);
        }
        let context = Context {
            inner: Arc::new(ContextInner {
                engine,
                shards,
                events: self.events.clone(),
                name: self.name.clone(),
                port: self.port,
                attr,
                device_memory: AtomicUsize::new(0),
                host_grace,
            }),
        };
        contexts::add(&context);
        context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_tells_nothing_of_the_adapters_numbers() {
        let seed = [7; 32];
        let config = AdapterConfig::new(seed);
        let guid = config.guid.to_be_bytes();
        let first = Adapter::new(config).random_psn().get().to_le_bytes();
        assert_ne!(guid[1..3], first[1..3]);
    }
}
