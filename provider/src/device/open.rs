//! Opening a device on a link.

use std::{
    io,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use roce_transport::{
    adapter::{Adapter, AdapterConfig, RoceV1},
    addr::Gid,
    share::IdPartition,
};
use tracing::debug;

use super::{OpenError, OpenOptions, about_peer, contexts, failure_events::FailureEvents};
use crate::{
    diagnosis::{self, Diagnosis, Errnos},
    engine::{CounterSink, Engine, EngineParts, Sinks},
    fabric::{Direction, FaultPlan},
    faults::live,
    link::{CaptureFile, FaultyLink, Link, Observed, Observer},
    port::{GidLayout, PortAttr, Watch},
    profile::Profile,
    variables,
    verbs::{AsyncQueue, Context, ContextInner, DeviceAttr, DeviceCaps, Guid, ObjectEvents},
};

/// Parts of a device besides its adapter and link; none by default, as on a network inside the
/// process.
#[derive(Default)]
pub(super) struct Surroundings {
    pub(super) watch: Option<Watch>,
    pub(super) publishers: Vec<Box<dyn CounterSink>>,
    pub(super) sys_image_guid: Guid,
    /// Size and kinds of the GID table; without it, those of the profile.
    pub(super) layout: Option<GidLayout>,
}

/// Opens an adapter on a link of the caller's choice.
pub(super) fn open_link(
    name: String,
    port: PortAttr,
    link: Box<dyn Link>,
    surroundings: Surroundings,
    options: OpenOptions,
) -> Result<Context, OpenError> {
    let OpenOptions {
        progress,
        pcap,
        sockets_only: _,
        receive_buffer: _,
        source_ports: _,
        segments: _,
        write_only_packets,
        trusted_users: _,
        equal_keys,
        congestion,
        observer,
        mut trace,
        explain,
        faults,
        fault_seed,
        late,
        pkeys,
        limits,
        profile,
        cm,
        seed,
    } = options;
    let limits = profile.as_ref().map_or(limits, |profile| profile.limits(limits));
    let port = profile.as_ref().map_or(port, |profile| profile.port(port));
    let Surroundings { watch, publishers, sys_image_guid, layout } = surroundings;
    let mut link = if faults == FaultPlan::default() && !live::is_on() {
        link
    } else {
        Box::new(FaultyLink::new(link, &faults, fault_seed))
    };
    let seed = seed.map_or_else(random_seed, Ok)?;
    let observer = match pcap.or_else(variables::pcap) {
        Some(path) => {
            let capture = CaptureFile::new(&path, &name)
                .map_err(|source| OpenError::Capture { path, source })?;
            Some(Box::new(Both { capture, other: observer }) as Box<dyn Observer>)
        }
        None => observer,
    };
    let write_only_packets =
        write_only_packets.or_else(variables::write_only_packets).unwrap_or_default();
    let host_grace = watch.is_some().then_some(cm.listen_grace);
    let partition = link.sharing().and_then(|sharing| sharing.partition());
    let addresses = format!("{:?}", link.addresses());
    let mut config = AdapterConfig {
        port_mtu: port.active_mtu,
        source_port: link.source_port(),
        read_budget: link.receive_buffer().map_or(u64::MAX, |bytes| bytes as u64 / 2),
        equal_keys,
        write_only_packets: write_only_packets.try_into().unwrap_or(u32::MAX),
        congestion,
        late,
        pkeys,
        limits,
        cm,
        ..AdapterConfig::new(seed)
    };
    config.cm.tells_records = link.sharing().is_some();
    if let Some(partition) = partition {
        (config.qpns, config.cm.ids) = (partition.qpns(), partition.ids());
    }
    let node_guid = Guid(config.guid.to_be_bytes());
    let explain = explain.or_else(diagnosis::format);
    let text = |key| profile.as_ref().and_then(|profile| profile.text(key));
    let errnos = Errnos {
        objects: text("errno.objects"),
        missing: text("errno.missing"),
        sizes: text("errno.sizes"),
    };
    let diagnosis = explain
        .map(|format| Diagnosis::new(format, &name, about_peer::about_peer, errnos, &mut trace));
    let mut adapter = Adapter::with_trace(config, trace);
    adapter.set_port(port.active, port.active_mtu);
    // the place where programs look for an IPv4 address is one of a device's table alone
    let is_device = layout.is_some();
    let layout = layout
        .unwrap_or_else(|| profile.as_ref().map_or_else(GidLayout::default, Profile::gid_layout));
    adapter.set_roce_v1(layout.v1);
    adapter.set_gids(match layout.v1 {
        RoceV1::Absent if !is_device => link.addresses().into_iter().map(Gid::from).collect(),
        _ => layout.table(link.addresses()),
    });
    for address in link.addresses() {
        adapter.set_flow_ports(address, link.flow_ports(address));
        adapter.set_control_port(address, link.control_port(address));
    }
    while adapter.poll_event().is_some() {} // how it starts is no news
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
    let events = Arc::new(AsyncQueue::new(|_| true)?);
    let mut sinks = Sinks::default();
    sinks.of::<ObjectEvents>().add_reader(&events);
    sinks.of::<FailureEvents>().0 = diagnosis.as_ref().map(Diagnosis::events);
    let engine = Engine::start(
        EngineParts {
            name: name.clone(),
            adapter,
            layout,
            link,
            observer,
            sinks,
            watch,
            publishers,
            diagnosis,
        },
        progress,
    )?;
    debug!(
        device = name,
        addresses,
        mtu = port.active_mtu.bytes(),
        partition = partition.map(IdPartition::get),
        "device opened"
    );
    let context = Context {
        inner: Arc::new(ContextInner {
            engine,
            events,
            name,
            port,
            attr,
            device_memory: AtomicUsize::new(0),
            host_grace,
        }),
    };
    contexts::add(&context);
    Ok(context)
}

pub(super) fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(seed)
}

/// A capture and the program's own observer.
struct Both {
    capture: CaptureFile,
    other: Option<Box<dyn Observer>>,
}

impl Observer for Both {
    fn observe(&mut self, observed: &Observed<'_>) {
        self.capture.observe(observed);
        if let Some(other) = &mut self.other {
            other.observe(observed);
        }
    }

    fn observe_frame(&mut self, at: Duration, direction: Direction, frame: &[u8]) {
        self.capture.observe_frame(at, direction, frame);
        if let Some(other) = &mut self.other {
            other.observe_frame(at, direction, frame);
        }
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
