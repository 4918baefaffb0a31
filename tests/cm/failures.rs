use std::net::SocketAddr;

use roce::{
    State,
    cm::{
        CmError, CmQpAttr, ConnParam, EventKind, IdState, PortSpace, RejectReason, Status, UDP_QKEY,
    },
    faults::FaultRules,
};

use super::{PATIENCE, World, accept, eventually, expect, port};

/// The client's only event, and the end of its connection.
#[track_caller]
fn fails(world: &World, id: &roce::cm::CmId, kind: EventKind, status: Status) {
    let event = expect(&world.a_channel, kind);
    assert_eq!((event.id(), event.status()), (id, status));
    assert_eq!(id.state(), IdState::Closed);
    assert!(matches!(id.connect(&ConnParam::default()), Err(CmError::State(IdState::Closed))));
    assert!(matches!(id.disconnect(), Err(CmError::State(IdState::Closed))));
}

#[test]
fn no_listener() {
    let world = World::new(PortSpace::Tcp);
    let client = world.a_channel.create_id(PortSpace::Tcp);
    client.set_context(&world.a).unwrap();
    super::resolve(&world.a_channel, &client, SocketAddr::new(world.address().ip(), port()));
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    let inbox = client.reg_msgs(8).unwrap();
    client.post_recv(5, [inbox.sge_all()]).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    fails(&world, &client, EventKind::Rejected, Status::Rejected(RejectReason::INVALID_SERVICE_ID));
    assert_eq!(client.qp().unwrap().query().state, State::Err);
    assert_eq!(client.get_recv_comp().unwrap().wr_id, 5, "what was posted is given back");
    world.assert_gone();
}

#[test]
fn the_program_rejects_the_request() {
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam::default());
    request.id().reject(b"not today").unwrap();
    assert!(matches!(request.id().reject(b""), Err(CmError::State(IdState::Closed))));
    assert!(matches!(
        request.id().accept(&ConnParam::default()),
        Err(CmError::State(IdState::Closed))
    ));
    let event = expect(&world.a_channel, EventKind::Rejected);
    assert_eq!(
        (event.status(), &event.private_data()[..10]),
        (Status::Rejected(RejectReason::CONSUMER), &b"not today\0"[..])
    );
    assert_eq!((event.status().code(), event.private_data().len()), (28, 148));
    assert_eq!(client.state(), IdState::Closed);
    world.assert_gone();
}

#[test]
fn requests_that_are_dropped_are_refused() {
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam::default());
    drop(request);
    fails(&world, &client, EventKind::Rejected, Status::Rejected(RejectReason::CONSUMER));
    let clients = [world.client(), world.client()];
    for client in &clients {
        client.connect(&ConnParam::default()).unwrap();
    }
    eventually("two requests wait", || world.b.cm_count() == 2);
    let World { fabric, a, b, a_channel, b_channel, listener } = world;
    drop(listener);
    for _ in &clients {
        assert_eq!(
            expect(&a_channel, EventKind::Rejected).status(),
            Status::Rejected(RejectReason::CONSUMER)
        );
    }
    assert!(b_channel.poll().is_none());
    eventually("connections are left", || a.cm_count() == 0 && b.cm_count() == 0);
    drop(fabric);
}

#[test]
fn no_response() {
    let world = World::new(PortSpace::Tcp);
    let client = world.a_channel.create_id(PortSpace::Tcp);
    client.set_context(&world.a).unwrap();
    super::resolve(&world.a_channel, &client, "10.0.0.99:1".parse().unwrap());
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    fails(&world, &client, EventKind::Unreachable, Status::Errno(110));
    assert_eq!(Status::Errno(110).code(), -110);
    world.assert_gone();
}

/// The REP is lost for good.
#[test]
fn no_confirmation() {
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam::default());
    world.cut();
    let server = accept(&request);
    let event = expect(&world.b_channel, EventKind::Unreachable);
    assert_eq!(
        (event.id(), event.status(), server.state()),
        (&server, Status::Errno(110), IdState::Closed)
    );
    fails(&world, &client, EventKind::Unreachable, Status::Errno(110));
    world.assert_gone();
}

/// The DREQ gets no response.
#[test]
fn no_response_to_the_end() {
    let world = World::new(PortSpace::Tcp);
    let (client, server) = world.connected();
    world.cut();
    client.disconnect().unwrap();
    assert_eq!(expect(&world.a_channel, EventKind::Disconnected).id(), &client);
    assert_eq!(expect(&world.a_channel, EventKind::TimewaitExit).id(), &client);
    assert_eq!(server.state(), IdState::Established);
}

#[test]
fn the_peers_device_is_closed() {
    let world = World::new(PortSpace::Tcp);
    let (client, server) = world.connected();
    let World { fabric, a, b, a_channel, b_channel, listener } = world;
    // the last handles
    drop((server, listener, b_channel, b));
    assert_eq!(expect(&a_channel, EventKind::Disconnected).id(), &client);
    client.disconnect().unwrap();
    assert_eq!(expect(&a_channel, EventKind::TimewaitExit).id(), &client);
    assert_eq!(a.cm_count(), 0);
    fabric
        .open(super::B.parse().unwrap(), roce::OpenOptions::default())
        .expect("the address is free again");
}

/// This side's queue pair has left INIT when the peer accepts.
#[test]
fn the_requesting_queue_pair_cannot_move() {
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam::default());
    client.qp().unwrap().to_error().unwrap();
    let server = accept(&request);
    fails(&world, &client, EventKind::ConnectError, Status::Errno(22));
    let event = expect(&world.b_channel, EventKind::Rejected);
    assert_eq!((event.id(), event.status()), (&server, Status::Rejected(RejectReason::CONSUMER)));
    assert_eq!(server.qp().unwrap().query().state, State::Err);
    assert_eq!(expect(&world.b_channel, EventKind::TimewaitExit).id(), &server);
    world.assert_gone();
}

/// Accepting fails at once; the program can still reject.
#[test]
fn the_accepting_queue_pair_cannot_move() {
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam::default());
    let server = request.id();
    server.create_qp(None, &CmQpAttr::default()).unwrap();
    server.qp().unwrap().to_error().unwrap();
    assert!(matches!(server.accept(&ConnParam::default()), Err(CmError::Modify(_))));
    assert_eq!(server.state(), IdState::RequestReceived);
    server.reject(b"").unwrap();
    fails(&world, &client, EventKind::Rejected, Status::Rejected(RejectReason::CONSUMER));
}

#[test]
fn services_must_agree() {
    let world = World::new(PortSpace::Ib);
    for wrong in [roce::QpType::Uc, roce::QpType::Ud] {
        let client = world.a_channel.create_id(PortSpace::Ib);
        client.set_context(&world.a).unwrap();
        client.set_qp_type(wrong).unwrap();
        super::resolve(&world.a_channel, &client, world.address());
        client.create_qp(None, &CmQpAttr::default()).unwrap();
        client.connect(&ConnParam::default()).unwrap();
        let (kind, status) = match wrong {
            roce::QpType::Uc => {
                (EventKind::Rejected, Status::Rejected(RejectReason::INVALID_TRANSPORT))
            }
            _ => (EventKind::Unreachable, Status::Sidr(1)),
        };
        fails(&world, &client, kind, status);
    }
    world.assert_gone();
    let world = World::with(PortSpace::Ib, 4, |id| id.set_qp_type(roce::QpType::Ud).unwrap());
    let client = world.a_channel.create_id(PortSpace::Ib);
    client.set_context(&world.a).unwrap();
    super::resolve(&world.a_channel, &client, world.address());
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    fails(&world, &client, EventKind::Rejected, Status::Rejected(RejectReason::INVALID_TRANSPORT));
    world.assert_gone();
}

#[test]
fn the_backlog_is_kept() {
    let world = World::with(PortSpace::Tcp, 2, |_| {});
    let clients: Vec<_> = (0..3).map(|_| world.client()).collect();
    for client in &clients {
        client.connect(&ConnParam::default()).unwrap();
    }
    let (first, second) = (world.request(), world.request());
    eventually("the third is refused", || {
        world.b.counters().dropped(roce::DropReason::CmBacklog) > 0
    });
    assert!(world.b_channel.poll().is_none());
    first.id().reject(b"").unwrap();
    let third = world.request();
    assert_ne!(third.id().peer_addr(), second.id().peer_addr());
    second.id().reject(b"").unwrap();
    third.id().reject(b"").unwrap();
    for _ in 0..3 {
        expect(&world.a_channel, EventKind::Rejected);
    }
    world.assert_gone();
}

/// A request withdrawn before the program sees it leaves nothing.
#[test]
fn a_request_is_taken_back() {
    let world = World::new(PortSpace::Tcp);
    let client = world.client();
    client.connect(&ConnParam::default()).unwrap();
    eventually("the request comes", || world.b.cm_count() == 1);
    drop(client);
    world.assert_gone();
    // once seen, its withdrawal raises an event
    let (client, request) = world.call(&ConnParam::default());
    drop(client);
    let event = expect(&world.b_channel, EventKind::Rejected);
    assert_eq!(
        (event.id(), event.status()),
        (request.id(), Status::Rejected(RejectReason::TIMEOUT))
    );
    assert!(matches!(request.id().reject(b""), Err(CmError::State(IdState::Closed))));
    world.assert_gone();
}

#[test]
fn no_way_to_an_address() {
    let world = World::new(PortSpace::Tcp);
    let client = world.a_channel.create_id(PortSpace::Tcp);
    // The system refuses broadcast addresses.
    client.resolve_addr(None, "127.255.255.255:1".parse().unwrap(), PATIENCE).unwrap();
    let event = expect(&world.a_channel, EventKind::AddrError);
    assert_eq!(
        (event.id(), event.status(), client.state()),
        (&client, Status::Errno(13), IdState::Bound)
    );
    assert!(matches!(client.resolve_route(PATIENCE), Err(CmError::State(IdState::Bound))));
    client.set_context(&world.a).unwrap_err();
}

#[test]
fn calls_out_of_turn() {
    let world = World::new(PortSpace::Tcp);
    let id = world.a_channel.create_id(PortSpace::Tcp);
    let errno = |result: Result<(), CmError>| result.unwrap_err().errno();
    let (einval, eaddrinuse) = (22, 98);
    assert_eq!(errno(id.resolve_route(PATIENCE)), einval);
    assert_eq!(errno(id.create_qp(None, &CmQpAttr::default())), einval);
    assert_eq!(errno(id.connect(&ConnParam::default())), einval);
    assert_eq!(errno(id.accept(&ConnParam::default())), einval);
    assert_eq!(errno(id.reject(b"")), einval);
    assert_eq!(errno(id.disconnect()), einval);
    assert_eq!(errno(id.establish()), einval);
    assert_eq!(errno(id.notify()), einval);
    assert_eq!(errno(id.join_multicast("239.1.1.1".parse().unwrap())), einval);
    assert_eq!(errno(id.leave_multicast("239.1.1.1".parse().unwrap())), 99);
    assert_eq!(errno(id.get_request().map(drop)), einval);
    assert_eq!(errno(id.get_send_comp().map(drop)), einval);
    assert_eq!(errno(id.post_recv(1, [])), einval);
    assert_eq!(errno(id.bind_addr("239.1.1.1:5".parse().unwrap())), einval);
    assert_eq!(
        errno(id.bind_addr("192.0.2.77:5".parse().unwrap())),
        99,
        "not an address of this host"
    );
    assert_eq!(errno(id.resolve_addr(None, "0.0.0.0:5".parse().unwrap(), PATIENCE)), einval);
    assert_eq!(
        errno(id.resolve_addr(
            Some("0.0.0.0:0".parse().unwrap()),
            "[::1]:5".parse().unwrap(),
            PATIENCE
        )),
        97
    );
    assert_eq!(errno(id.set_ack_timeout(32)), einval);
    assert_eq!(errno(id.set_min_rnr_timer(32)), einval);
    assert_eq!(errno(id.set_qp_type(roce::QpType::Uc)), einval);
    assert_eq!(id.state(), IdState::Idle);
    assert!(
        id.event().is_none()
            && id.qp_setup().is_none()
            && id.context().is_none()
            && id.local_addr().is_none()
    );

    id.set_context(&world.b).unwrap();
    assert_eq!(errno(id.bind_addr("10.0.0.9:5".parse().unwrap())), 99, "not of the device");
    assert_eq!(errno(id.bind_addr(world.address())), eaddrinuse);
    id.bind_addr(SocketAddr::new(world.address().ip(), 0)).unwrap();
    assert_eq!(errno(id.bind_addr(SocketAddr::new(world.address().ip(), 0))), einval);
    assert_eq!(errno(id.set_reuse_addr(false)), einval);
    id.set_afonly(true).unwrap(); // applies when listening
    id.listen(1).unwrap();
    assert_eq!(errno(id.set_afonly(false)), einval);
    assert_eq!(errno(id.listen(1)), einval);
    assert_eq!(errno(id.resolve_addr(None, world.address(), PATIENCE)), einval);

    let client = world.client();
    assert_eq!(errno(client.create_qp(None, &CmQpAttr::default())), einval);
    for wrong in [
        ConnParam { retry_count: 8, ..ConnParam::default() },
        ConnParam { rnr_retry_count: 8, ..ConnParam::default() },
        ConnParam { responder_resources: 129, ..ConnParam::default() },
        ConnParam { initiator_depth: 200, ..ConnParam::default() },
    ] {
        assert_eq!(errno(client.connect(&wrong)), einval);
    }
    assert_eq!((client.state(), world.a.cm_count()), (IdState::RouteResolved, 0));
    client.destroy_qp();
    assert!(client.qp().is_none());
    // another device's
    assert_eq!(
        errno(client.create_qp(Some(&world.b.alloc_pd().unwrap()), &CmQpAttr::default())),
        einval
    );
    client.create_qp(Some(&client.pd().unwrap()), &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    assert_eq!(errno(client.connect(&ConnParam::default())), einval);
    assert_eq!(errno(client.disconnect()), einval);
    assert_eq!(UDP_QKEY.0, 0x0123_4567);
}

#[test]
fn a_rough_network() {
    let world = World::new(PortSpace::Tcp);
    world.fabric.with_faults(|faults| {
        for rule in ["drop every 5", "duplicate every 3"] {
            faults.add(rule.parse().unwrap());
        }
    });
    for _ in 0..20 {
        let (client, server) = world.connected();
        client.disconnect().unwrap();
        assert_eq!(expect(&world.b_channel, EventKind::Disconnected).id(), &server);
        server.disconnect().unwrap();
        assert_eq!(expect(&world.a_channel, EventKind::Disconnected).id(), &client);
        assert_eq!(expect(&world.a_channel, EventKind::TimewaitExit).id(), &client);
        assert_eq!(expect(&world.b_channel, EventKind::TimewaitExit).id(), &server);
    }
    world.assert_gone();
}

fn rule_of(text: &str) -> roce::fabric::Rule {
    let rules: FaultRules = text.parse().unwrap();
    let [rule] = &rules.packets.rules[..] else { panic!("{rules:?}") };
    rule.clone()
}

#[test]
fn a_message_is_lost_on_request() {
    for message in ["connect", "accept", "established", "disconnect", "disconnected"] {
        let world = World::new(PortSpace::Tcp);
        let rule = rule_of(&format!("cm drop {message} once"));
        let id = world.fabric.with_faults(|faults| faults.add(rule));
        let hits = || world.fabric.with_faults(|faults| faults.hits(id));
        let (client, server) = world.connected();
        let is_of_begin = ["connect", "accept", "established"].contains(&message);
        assert_eq!(hits(), u64::from(is_of_begin), "{message}");
        client.disconnect().unwrap();
        assert_eq!(expect(&world.b_channel, EventKind::Disconnected).id(), &server);
        server.disconnect().unwrap();
        assert_eq!(expect(&world.a_channel, EventKind::Disconnected).id(), &client);
        assert_eq!(expect(&world.a_channel, EventKind::TimewaitExit).id(), &client);
        assert_eq!(expect(&world.b_channel, EventKind::TimewaitExit).id(), &server);
        assert_eq!(hits(), 1, "{message}");
        world.assert_gone();
    }
}

#[test]
fn every_request_is_lost_on_request() {
    let world = World::new(PortSpace::Tcp);
    let rule = rule_of("cm drop connect");
    world.fabric.with_faults(|faults| faults.add(rule));
    let client = world.client();
    client.connect(&ConnParam::default()).unwrap();
    fails(&world, &client, EventKind::Unreachable, Status::Errno(libc::ETIMEDOUT));
    world.assert_gone();
}
