//! Lost addresses and links, and requests that no program sends.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use roce_transport::{
    addr::{AddressVector, Gid, Mtu, PKey, Qpn},
    cm::{CmService, ConnEnd, ConnId, Connect, IpHeader},
    psn::Psn,
};
use rustix::event::{EventfdFlags, eventfd};

use super::{param::Param, route::CmDispatcher, shared::Shared, *};
use crate::{Context, Device, OpenOptions, device::tests::TestLink, link::Fabric};

const SOON: Option<Duration> = Some(Duration::from_secs(20));

struct World {
    a: Context,
    b: Context,
    channel: EventChannel,
    listener: CmId,
}

impl World {
    fn new(port_space: PortSpace) -> Self {
        let fabric = Fabric::new("".parse().unwrap(), 1);
        let open = |ip: &str| fabric.open(ip.parse().unwrap(), OpenOptions::default()).unwrap();
        let (a, b) = (open("10.9.0.1"), open("10.9.0.2"));
        let channel = EventChannel::new().unwrap();
        let listener = channel.create_id(port_space);
        listener.set_context(&b).unwrap();
        listener.listen(4).unwrap();
        Self { a, b, channel, listener }
    }

    fn to(&self) -> SocketAddr {
        self.listener.listening_addrs()[0]
    }

    fn client(&self) -> CmId {
        let id = self.channel.create_id(self.listener.port_space());
        id.set_context(&self.a).unwrap();
        id.resolve_addr(None, self.to(), Duration::ZERO).unwrap();
        self.expect(EventKind::AddrResolved);
        id
    }

    #[track_caller]
    fn expect(&self, kind: EventKind) -> CmEvent {
        let event = self.channel.wait(SOON).unwrap();
        assert_eq!(event.kind(), kind, "{event:?}");
        event
    }

    fn send(&self, id: &CmId, private_data: &[u8]) -> ConnId {
        let request = Connect {
            service_id: self.listener.port_space().service(self.to().port()),
            av: AddressVector::new(self.to().ip().into(), 0),
            service: CmService::Rc,
            end: ConnEnd {
                qpn: Qpn::new(5),
                starting_psn: Psn::new(0),
                responder_resources: 1,
                initiator_depth: 1,
                rnr_retry: 7,
                min_rnr_timer: 0,
                srq: false,
            },
            managed: false,
            retry_count: 7,
            ack_timeout: 10,
            fits_ack_delay: false,
            path_mtu: Mtu::B1024,
            pkey: PKey::DEFAULT,
            private_data,
        };
        self.a.inner.engine.command_shard(|shard, now| {
            let (adapter, _, dispatcher) = shard.parts::<CmDispatcher>();
            let conn = adapter.cm_connect(now, &request).unwrap();
            dispatcher.conns.insert(conn, id.shared().clone());
            conn
        })
    }
}

#[test]
fn a_false_header_is_refused() {
    let world = World::new(PortSpace::Tcp);
    let id = world.client();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let right = IpHeader { src_port: 7, src: ip("10.9.0.1"), dst: ip("10.9.0.2") };
    let mut version = right.encode();
    version[0] = 1;
    let mut family = right.encode();
    family[1] = 0x50;
    let refused = [
        version,
        family,
        [0; IpHeader::LEN],
        IpHeader { dst: ip("10.9.0.3"), ..right }.encode(),
        IpHeader { src: ip("10.9.0.4"), ..right }.encode(),
        IpHeader { src: ip("239.1.1.1"), ..right }.encode(),
        IpHeader { src: ip("::1"), dst: ip("::1"), ..right }.encode(),
    ];
    for header in refused {
        world.send(&id, &header);
        assert_eq!(
            world.expect(EventKind::Rejected).status(),
            Status::Rejected(RejectReason::CONSUMER),
            "{header:x?}"
        );
        assert_eq!(world.b.cm_count(), 0);
    }
    world.send(&id, &right.encode());
    let request = world.expect(EventKind::ConnectRequest);
    assert_eq!(request.id().peer_addr(), Some(SocketAddr::new(ip("10.9.0.1"), 7)));
    request.id().reject(b"").unwrap();
    world.expect(EventKind::Rejected);
}

#[test]
fn an_address_comes_and_goes() {
    let world = World::new(PortSpace::Tcp);
    let set = |context: &Context, ips: &[&str]| {
        let gids = ips.iter().map(|ip| Gid::from(ip.parse::<IpAddr>().unwrap())).collect();
        context.inner.engine.command(|adapter, _| adapter.set_gids(gids));
    };
    let client = world.client();
    set(&world.a, &["10.9.0.1", "10.9.0.11"]);
    assert!(world.channel.poll().is_none(), "its own address is still there");
    set(&world.a, &["10.9.0.11"]);
    let event = world.expect(EventKind::AddrChange);
    assert_eq!((event.id(), event.status()), (&client, Status::Errno(libc::EADDRNOTAVAIL)));
    client.resolve_route(Duration::ZERO).unwrap();
    let event = world.expect(EventKind::RouteError);
    assert_eq!((event.id(), event.status()), (&client, Status::Errno(libc::EADDRNOTAVAIL)));
    assert_eq!(client.state(), IdState::AddrResolved);
    set(&world.a, &["10.9.0.1"]);
    client.resolve_route(Duration::ZERO).unwrap();
    world.expect(EventKind::RouteResolved);
    // a wildcard listener adds only the new address
    set(&world.b, &["10.9.0.2", "10.9.0.22", "fd00::1"]);
    let addresses = world.listener.listening_addrs();
    assert_eq!(
        addresses.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>(),
        ["10.9.0.2", "10.9.0.22"]
    );
    let other = World::new(PortSpace::Udp);
    let service_id = world.listener.port_space().service(world.to().port());
    let listens = |context: &Context, service_id, address: &str| {
        let address = Some(address.parse().unwrap());
        let listen = roce_transport::cm::Listen { service_id, address, backlog: 1 };
        context.inner.engine.command(|adapter, _| adapter.cm_listen(listen).is_err())
    };
    assert!(listens(&world.b, service_id, "10.9.0.2"));
    assert!(listens(&world.b, service_id, "10.9.0.22"));
    assert!(!listens(&world.b, service_id, "fd00::1"));
    // the same without an initial address of its family
    let waiting = world.channel.create_id(PortSpace::Tcp);
    waiting.set_context(&world.a).unwrap();
    waiting.set_afonly(true).unwrap();
    waiting.bind_addr("[::]:0".parse().unwrap()).unwrap();
    waiting.listen(1).unwrap();
    let service_id = PortSpace::Tcp.service(waiting.src_port());
    assert!(waiting.listening_addrs().is_empty());
    set(&world.a, &["10.9.0.1", "fd00::2"]);
    assert!(listens(&world.a, service_id, "fd00::2"));
    assert!(!listens(&world.a, service_id, "10.9.0.1"));
    drop(other);
}

#[test]
fn a_device_is_lost() {
    let fails = Arc::new(AtomicBool::new(false));
    let descriptor = eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let receive_fails = fails.clone();
    let receive = Box::new(move || match receive_fails.load(Ordering::Relaxed) {
        true => Err(io::ErrorKind::BrokenPipe.into()),
        false => Ok(0),
    });
    let link = TestLink { descriptor, receive };
    let context = Device::with_link("failing", link, Mtu::B1024, OpenOptions::default()).unwrap();
    let channel = EventChannel::new().unwrap();
    let (listener, client) = (channel.create_id(PortSpace::Tcp), channel.create_id(PortSpace::Udp));
    listener.set_context(&context).unwrap();
    listener.listen(1).unwrap();
    client.set_context(&context).unwrap();
    client.bind_addr("10.0.0.1:0".parse().unwrap()).unwrap();
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.join_multicast("239.1.1.1".parse().unwrap()).unwrap();
    let event = channel.wait(SOON).unwrap();
    assert_eq!((event.kind(), event.id()), (EventKind::MulticastError, &client));
    assert!(matches!(event.status(), Status::Errno(_)));
    assert!(matches!(
        client.leave_multicast("239.1.1.1".parse().unwrap()),
        Err(CmError::NotJoined(_))
    ));
    fails.store(true, Ordering::Relaxed);
    let mut lost: Vec<CmId> = Vec::new();
    for _ in 0..2 {
        let event = channel.wait(SOON).unwrap();
        assert_eq!(
            (event.kind(), event.status()),
            (EventKind::DeviceRemoval, Status::Errno(libc::ENODEV))
        );
        lost.push(event.id().clone());
    }
    assert!(lost.contains(&listener) && lost.contains(&client));
}

#[test]
fn nothing_is_left_behind() {
    let world = World::new(PortSpace::Tcp);
    let client = world.client();
    client.resolve_route(Duration::ZERO).unwrap();
    world.expect(EventKind::RouteResolved);
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    let request = world.expect(EventKind::ConnectRequest);
    request.id().create_qp(None, &CmQpAttr::default()).unwrap();
    request.id().accept(&ConnParam::default()).unwrap();
    for _ in 0..2 {
        world.expect(EventKind::Established);
    }
    let kept: Vec<std::sync::Weak<Shared>> =
        [&client, &world.listener, request.id()].map(|id| Arc::downgrade(id.shared())).into();
    let World { a, b, channel, listener } = world;
    drop((client, request, listener));
    assert!(channel.poll().is_none());
    drop(channel);
    assert!(kept.iter().all(|id| id.strong_count() == 0));
    for context in [&a, &b] {
        context.inner.engine.command_shard(|shard, _| {
            assert!(shard.sink::<CmDispatcher>().is_empty());
        });
    }
}

#[test]
fn events_are_numbered_as_in_c() {
    assert_eq!(EventKind::ALL.len(), 19);
    for (index, kind) in EventKind::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, index);
        assert!(kind.name().starts_with("RDMA_CM_EVENT_"));
    }
    assert_eq!(
        (
            EventKind::ConnectRequest as u8,
            EventKind::Established as u8,
            EventKind::TimewaitExit as u8
        ),
        (4, 9, 15)
    );
    assert_eq!(Param::default(), Param::None);
}
