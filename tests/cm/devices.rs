//! The device of an id when the program names none, over real sockets on loopback.

use std::{
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
    time::{Duration, Instant},
};

use roce::{
    Context, Device, OpenOptions, Progress, SendFlags,
    cm::{
        CmError, CmQpAttr, ConnParam, EventChannel, EventKind, IdState, PortSpace, RejectReason,
        Status,
    },
    link::Fabric,
    transport::cm::CmConfig,
};

use super::{PATIENCE, accept, eventually, expect, resolve};

fn device() -> &'static Context {
    static DEVICE: OnceLock<Context> = OnceLock::new();
    DEVICE.get_or_init(|| Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap())
}

fn own(context: &Context) -> IpAddr {
    context.gids()[0].to_ip()
}

#[test]
fn an_open_device_is_used() {
    let channel = EventChannel::new().unwrap();
    let listener = channel.create_id(PortSpace::Tcp);
    listener.bind_addr(SocketAddr::new(own(device()), 0)).unwrap();
    assert_eq!(listener.context().unwrap().gids(), device().gids());
    listener.listen(4).unwrap();
    assert_eq!(listener.listening_addrs(), [listener.local_addr().unwrap()]);
    let client = channel.create_id(PortSpace::Tcp);
    resolve(&channel, &client, listener.local_addr().unwrap());
    let from = client.local_addr().unwrap();
    assert!(from.ip().is_loopback() && from.port() >= 32_768);
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    let request = expect(&channel, EventKind::ConnectRequest);
    assert_eq!(request.id().peer_addr(), Some(from));
    accept(&request);
    expect(&channel, EventKind::Established);
}

/// A local address that this process does not have open may be another program's.
#[test]
fn an_own_address_that_is_not_open_stays_free() {
    let address: IpAddr = format!("127.79.{}.1", std::process::id() as u8).parse().unwrap();
    let channel = EventChannel::new().unwrap();
    let id = channel.create_id(PortSpace::Tcp);
    let to = SocketAddr::new(address, 7);
    id.resolve_addr(Some(SocketAddr::new(address, 0)), to, PATIENCE).unwrap();
    expect(&channel, EventKind::AddrResolved);
    assert_ne!(id.local_addr().unwrap().ip(), address);
    let other = Device::at(address).unwrap().open(OpenOptions::default()).unwrap();
    let id = channel.create_id(PortSpace::Tcp);
    id.resolve_addr(Some(SocketAddr::new(address, 0)), to, PATIENCE).unwrap();
    expect(&channel, EventKind::AddrResolved);
    assert_eq!(
        (id.local_addr().unwrap().ip(), id.context().unwrap().gids()),
        (address, other.gids())
    );
}

/// An absent peer on loopback refuses like the kernel's, after the grace time.
#[test]
fn nobody_is_there() {
    let open = |grace| {
        let cm = CmConfig { listen_grace: grace, ..CmConfig::default() };
        Device::named("roce_lo")
            .unwrap()
            .open(OpenOptions { cm, ..OpenOptions::default() })
            .unwrap()
    };
    let peer: IpAddr = format!("127.82.{}.1", std::process::id() as u8).parse().unwrap();
    let to = SocketAddr::new(peer, super::port());
    let channel = EventChannel::new().unwrap();
    let call = |space, context: &Context| {
        let id = channel.create_id(space);
        id.set_context(context).unwrap();
        resolve(&channel, &id, to);
        id.create_qp(None, &CmQpAttr::default()).unwrap();
        id.connect(&ConnParam::default()).unwrap();
        id
    };
    let (impatient, patient) = (open(Duration::ZERO), open(PATIENCE));
    let id = call(PortSpace::Tcp, &impatient);
    let event = expect(&channel, EventKind::Rejected);
    assert_eq!(
        (event.id(), event.status()),
        (&id, Status::Rejected(RejectReason::INVALID_SERVICE_ID))
    );
    let id = call(PortSpace::Udp, &impatient);
    let event = expect(&channel, EventKind::Unreachable);
    assert_eq!((event.id(), event.status(), id.state()), (&id, Status::Sidr(1), IdState::Closed));

    let own_channel = EventChannel::new().unwrap();
    let listener = own_channel.create_id(PortSpace::Tcp);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| call(PortSpace::Tcp, &patient));
        // The client is waiting by now, or will find the listener.
        std::thread::sleep(Duration::from_millis(50));
        listener.bind_addr(to).unwrap();
        listener.listen(1).unwrap();
        let request = expect(&own_channel, EventKind::ConnectRequest);
        accept(&request);
        assert_eq!(expect(&channel, EventKind::Established).id(), &client.join().unwrap());
    });
}

/// A device opened by an id is closed with the channel, not with the id.
#[test]
fn a_device_is_opened_by_its_address() {
    let address: IpAddr = format!("127.78.{}.1", std::process::id() as u8).parse().unwrap();
    let channel = EventChannel::new().unwrap();
    let id = channel.create_id(PortSpace::Tcp);
    id.bind_addr(SocketAddr::new(address, 5005)).unwrap();
    assert_eq!(own(&id.context().unwrap()), address);
    drop(id);
    let alone = || OpenOptions { sockets_only: true, ..OpenOptions::default() };
    let taken = || Device::at(address).unwrap().open(alone()).is_err();
    assert!(taken(), "it stays open");
    // the port is free
    let id = channel.create_id(PortSpace::Tcp);
    id.bind_addr(SocketAddr::new(address, 5005)).unwrap();
    drop(channel);
    assert!(taken(), "the id has the channel");
    drop(id);
    // Another test may be probing the device.
    eventually("it is closed", || !taken());
}

/// All devices including loopback, on every address not bound by name.
#[test]
fn everywhere_at_once() {
    device();
    let channel = EventChannel::new().unwrap();
    let listener = channel.create_id(PortSpace::Tcp);
    listener.bind_addr("0.0.0.0:0".parse().unwrap()).unwrap();
    listener.listen(16).unwrap();
    let addresses = listener.listening_addrs();
    assert!(addresses.iter().any(|address| address.ip() == own(device())), "{addresses:?}");
    assert!(
        addresses.iter().all(|address| address.is_ipv4() && address.port() == listener.src_port())
    );
    assert!(listener.context().is_none());
    for address in addresses {
        let own_channel = EventChannel::new().unwrap();
        let client = own_channel.create_id(PortSpace::Tcp);
        resolve(&own_channel, &client, address);
        client.create_qp(None, &CmQpAttr::default()).unwrap();
        client.connect(&ConnParam::default()).unwrap();
        let request = expect(&channel, EventKind::ConnectRequest);
        let server = request.id();
        assert_eq!(server.local_addr(), Some(address));
        assert!(server.context().unwrap().gids().contains(&address.ip().into()));
        accept(&request);
        expect(&own_channel, EventKind::Established);
        expect(&channel, EventKind::Established);
        let (inbox, outbox) = (server.reg_msgs(9000).unwrap(), client.reg_msgs(9000).unwrap());
        server.post_recv(1, [inbox.sge_all()]).unwrap();
        client.post_send(1, outbox.sge_all(), SendFlags::SIGNALED).unwrap();
        client.get_send_comp().unwrap().result.unwrap();
    }
    let second = channel.create_id(PortSpace::Tcp);
    assert!(matches!(
        second.bind_addr(SocketAddr::new(own(device()), listener.src_port())),
        Err(CmError::PortOverlap(_))
    ));
}

/// Without a bound address, an address of the peer's family is chosen.
#[test]
fn both_families() {
    let Ok(device) = Device::at("::1".parse().unwrap()) else { return }; // no IPv6
    // another test program may have it
    let Ok(context) = device.open(OpenOptions::default()) else { return };
    let channel = EventChannel::new().unwrap();
    let listener = channel.create_id(PortSpace::Tcp);
    listener.bind_addr(SocketAddr::new(own(&context), 0)).unwrap();
    listener.listen(4).unwrap();
    let client = channel.create_id(PortSpace::Tcp);
    assert!(matches!(
        client.resolve_addr(
            Some("0.0.0.0:0".parse().unwrap()),
            listener.local_addr().unwrap(),
            PATIENCE
        ),
        Err(CmError::Family(_))
    ));
    resolve(&channel, &client, listener.local_addr().unwrap());
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    let request = expect(&channel, EventKind::ConnectRequest);
    assert_eq!(request.id().peer_addr(), client.local_addr());
    accept(&request);
    expect(&channel, EventKind::Established);
    expect(&channel, EventKind::Established);
}

/// The IPv6 wildcard includes IPv4 unless disabled; a host without IPv6 is no error.
#[test]
fn all_of_a_family() {
    let channel = EventChannel::new().unwrap();
    let (v4, v6) = ("10.1.0.1", "fd00::1");
    let table = [
        ("[::]:0", Some(false), v4, true),
        ("[::]:0", Some(true), v4, false),
        ("[::]:0", Some(true), v6, true),
        ("0.0.0.0:0", None, v4, true),
        ("0.0.0.0:0", None, v6, false),
    ];
    for (all, afonly, device, hears) in table {
        let fabric = Fabric::new("".parse().unwrap(), 1);
        let context = fabric.open(device.parse().unwrap(), OpenOptions::default()).unwrap();
        let id = channel.create_id(PortSpace::Tcp);
        id.set_context(&context).unwrap();
        if let Some(afonly) = afonly {
            id.set_afonly(afonly).unwrap();
        }
        id.bind_addr(all.parse().unwrap()).unwrap();
        id.listen(1).unwrap();
        assert_eq!(id.listening_addrs().len(), usize::from(hears), "{all} {afonly:?} {device}");
    }
}

#[test]
fn a_listener_for_each_family() {
    let channel = EventChannel::new().unwrap();
    let port = super::port();
    let listen = |all: &str, afonly| {
        let id = channel.create_id(PortSpace::Tcp);
        id.set_afonly(afonly).unwrap();
        let address = SocketAddr::new(all.parse().unwrap(), port);
        id.bind_addr(address).and_then(|()| id.listen(1)).map(|()| id)
    };
    let v4 = listen("0.0.0.0", true).unwrap();
    assert!(matches!(listen("::", false), Err(CmError::PortOverlap(_))));
    let v6 = listen("::", true).unwrap();
    assert!(v4.listening_addrs().iter().all(SocketAddr::is_ipv4));
    assert!(v6.listening_addrs().iter().all(SocketAddr::is_ipv6));
}

/// Polling a channel suffices on both sides.
#[test]
fn devices_without_a_thread() {
    let fabric = Fabric::new("".parse().unwrap(), 1);
    let open = |ip: &str| {
        let options = OpenOptions { progress: Progress::Manual, ..OpenOptions::default() };
        fabric.open(ip.parse().unwrap(), options).unwrap()
    };
    let (a, b) = (open("10.2.0.1"), open("10.2.0.2"));
    let channel = EventChannel::new().unwrap();
    let (listener, client) = (channel.create_id(PortSpace::Tcp), channel.create_id(PortSpace::Tcp));
    listener.set_context(&b).unwrap();
    listener.listen(1).unwrap();
    client.set_context(&a).unwrap();
    client.resolve_addr(None, listener.listening_addrs()[0], PATIENCE).unwrap();
    client.resolve_route(PATIENCE).unwrap();
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    let start = Instant::now();
    let mut server = None;
    let mut seen = Vec::new();
    while seen.iter().filter(|&&kind| kind == EventKind::Established).count() < 2 {
        let Some(event) = channel.poll() else {
            assert!(start.elapsed() < PATIENCE, "{seen:?}");
            continue;
        };
        seen.push(event.kind());
        if event.kind() == EventKind::ConnectRequest {
            server = Some(accept(&event));
        }
    }
    assert_eq!(server.unwrap().state(), IdState::Established);
    assert_eq!(
        seen[..3],
        [EventKind::AddrResolved, EventKind::RouteResolved, EventKind::ConnectRequest]
    );
}

#[test]
fn ports_are_shared_if_both_agree() {
    let channel = EventChannel::new().unwrap();
    let id = |reuse| {
        let id = channel.create_id(PortSpace::Udp);
        id.set_reuse_addr(reuse).unwrap();
        id
    };
    let address = SocketAddr::new(own(device()), super::port());
    let (first, second, third) = (id(true), id(true), id(false));
    first.bind_addr(address).unwrap();
    second.bind_addr(address).unwrap();
    assert!(matches!(third.bind_addr(address), Err(CmError::PortInUse(_))));
    assert!(matches!(first.listen(1), Err(CmError::PortInUse(_))));
    drop(second);
    first.listen(1).unwrap();
    assert!(matches!(first.set_reuse_addr(true), Err(CmError::State(IdState::Listening))));
    assert!(matches!(id(true).bind_addr(address), Err(CmError::PortInUse(_))));
    drop(first);
    third.bind_addr(address).unwrap();
    // can be set late, but not reset
    third.set_reuse_addr(true).unwrap();
    assert!(matches!(third.set_reuse_addr(false), Err(CmError::State(IdState::Bound))));
    id(true).bind_addr(address).unwrap();
}
