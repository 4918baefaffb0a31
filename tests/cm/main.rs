//! `roce::cm` over an in-process network with faults, and over real sockets on loopback. A separate
//! program, because ids find the process's open devices.

mod alone;
mod datagrams;
mod devices;
mod ends;
mod failures;
#[path = "../forked.rs"]
mod forked;
mod forks;
mod guid;
mod killed;
mod life;
mod many;
#[path = "../own_test/mod.rs"]
mod own_test;
mod random;
mod sharing;
#[path = "../watchdog/mod.rs"]
mod watchdog;

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use roce::{
    Context, OpenOptions,
    cm::{CmEvent, CmId, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace, Status},
    link::Fabric,
    transport::cm::CmConfig,
};

const PATIENCE: Duration = Duration::from_secs(20);
const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

struct World {
    fabric: Fabric,
    a: Context,
    b: Context,
    a_channel: EventChannel,
    b_channel: EventChannel,
    listener: CmId,
}

/// Retransmits messages after 17 ms, 15 times; SIDR requests after 134 ms, as their retransmission
/// after the response is a new request, like in the kernel.
fn quick(port_space: PortSpace) -> CmConfig {
    let response_timeout =
        if matches!(port_space, PortSpace::Udp | PortSpace::Ipoib) { 15 } else { 12 };
    CmConfig { response_timeout, max_retries: 15, ..CmConfig::default() }
}

impl World {
    fn new(port_space: PortSpace) -> Self {
        Self::with(port_space, 16, |_| {})
    }

    fn with(port_space: PortSpace, backlog: usize, prepare: impl FnOnce(&CmId)) -> Self {
        watchdog::start(roce_provider::describe_engines);
        let fabric = Fabric::new("".parse().unwrap(), 1);
        let open = |ip: &str| {
            fabric
                .open(
                    ip.parse().unwrap(),
                    OpenOptions { cm: quick(port_space), ..OpenOptions::default() },
                )
                .unwrap()
        };
        let (a, b) = (open(A), open(B));
        let (a_channel, b_channel) = (EventChannel::new().unwrap(), EventChannel::new().unwrap());
        let listener = b_channel.create_id(port_space);
        listener.set_context(&b).unwrap();
        prepare(&listener);
        listener.bind_addr(SocketAddr::new(B.parse().unwrap(), port())).unwrap();
        listener.listen(backlog).unwrap();
        Self { fabric, a, b, a_channel, b_channel, listener }
    }

    fn port_space(&self) -> PortSpace {
        self.listener.port_space()
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn client(&self) -> CmId {
        let id = self.bare_client();
        id.create_qp(None, &CmQpAttr::default()).unwrap();
        id
    }

    fn bare_client(&self) -> CmId {
        let id = self.a_channel.create_id(self.port_space());
        id.set_context(&self.a).unwrap();
        id.set_qp_type(self.listener.qp_type()).unwrap();
        id.set_ack_timeout(14).unwrap(); // 67 ms, the time wait, too
        resolve(&self.a_channel, &id, self.address());
        id
    }

    fn call(&self, param: &ConnParam) -> (CmId, CmEvent) {
        let client = self.client();
        client.connect(param).unwrap();
        (client, self.request())
    }

    fn request(&self) -> CmEvent {
        let request = expect(&self.b_channel, EventKind::ConnectRequest);
        assert_eq!(request.listen_id(), Some(&self.listener));
        request
    }

    fn connected(&self) -> (CmId, CmId) {
        let (client, request) = self.call(&ConnParam::default());
        let server = accept(&request);
        assert_eq!(expect(&self.a_channel, EventKind::Established).id(), &client);
        assert_eq!(expect(&self.b_channel, EventKind::Established).id(), &server);
        (client, server)
    }

    /// No event follows, and no connection is left.
    #[track_caller]
    fn assert_gone(&self) {
        eventually("connections are left", || self.a.cm_count() == 0 && self.b.cm_count() == 0);
        self.assert_silent();
    }

    #[track_caller]
    fn assert_silent(&self) {
        for channel in [&self.a_channel, &self.b_channel] {
            if let Some(event) = channel.poll() {
                panic!("{event:?}");
            }
        }
    }

    fn cut(&self) {
        self.fabric.with_faults(|faults| faults.add("drop every 1".parse().unwrap()));
    }
}

fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(7000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[track_caller]
fn next(channel: &EventChannel) -> CmEvent {
    channel.wait(Some(PATIENCE)).unwrap()
}

/// Only failure events have an error.
#[track_caller]
fn expect(channel: &EventChannel, kind: EventKind) -> CmEvent {
    let event = next(channel);
    assert_eq!(event.kind(), kind, "{event:?}");
    event
}

#[track_caller]
fn resolve(channel: &EventChannel, id: &CmId, to: SocketAddr) {
    id.resolve_addr(None, to, PATIENCE).unwrap();
    let event = expect(channel, EventKind::AddrResolved);
    assert_eq!((event.id(), event.status()), (id, Status::Success));
    id.resolve_route(PATIENCE).unwrap();
    assert_eq!(expect(channel, EventKind::RouteResolved).id(), id);
}

fn accept(request: &CmEvent) -> CmId {
    let id = request.id().clone();
    id.create_qp(None, &CmQpAttr::default()).unwrap();
    id.accept(&ConnParam::default()).unwrap();
    id
}

#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
