use std::os::fd::AsFd;

use roce::{
    Access, ChannelError, OpenOptions, PeerAttr, Progress, QpType, RequesterAttr, ResponderAttr,
    Rtr, Rts, SendFlags, State,
    cm::{CmError, CmQpAttr, ConnParam, EventChannel, EventKind, IdState, PortSpace, Status},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{PATIENCE, World, accept, eventually, expect, next};

#[test]
fn a_connection_lives_and_ends() {
    for client_ends in [true, false] {
        let world = World::new(PortSpace::Tcp);
        let (client, request) = world
            .call(&ConnParam { private_data: b"who is there?".to_vec(), ..ConnParam::default() });
        let server = request.id();
        assert_eq!((request.status(), server.state()), (Status::Success, IdState::RequestReceived));
        assert_eq!(&request.private_data()[..14], b"who is there?\0");
        assert_eq!(request.private_data().len(), 56);
        assert_eq!(request.conn().unwrap().qpn, Some(client.qp().unwrap().qpn()));
        assert_eq!(
            (server.local_addr(), server.peer_addr()),
            (client.peer_addr(), client.local_addr())
        );
        assert_eq!(
            (client.dst_port(), server.dst_port()),
            (world.listener.src_port(), client.src_port())
        );
        assert!((32_768..=60_999).contains(&client.src_port()));

        // Receives posted before the connection take its messages.
        server.create_qp(None, &CmQpAttr::default()).unwrap();
        let inbox = server.reg_msgs(64).unwrap();
        server.post_recv(7, [inbox.sge_all()]).unwrap();
        server
            .accept(&ConnParam { private_data: b"it is I".to_vec(), ..ConnParam::default() })
            .unwrap();
        let established = expect(&world.a_channel, EventKind::Established);
        assert_eq!(
            (established.id(), &established.private_data()[..8]),
            (&client, &b"it is I\0"[..])
        );
        assert_eq!(established.private_data().len(), 196);
        assert_eq!(expect(&world.b_channel, EventKind::Established).id(), server);
        assert_eq!((client.state(), server.state()), (IdState::Established, IdState::Established));
        let outbox = client.reg_msgs(64).unwrap();
        outbox.write_at(0, b"hello").unwrap();
        client.post_send(8, outbox.sge(0..5), SendFlags::SIGNALED).unwrap();
        assert!(client.get_send_comp().unwrap().result.is_ok());
        let received = server.get_recv_comp().unwrap();
        assert_eq!((received.wr_id, received.result.unwrap().byte_len), (7, 5));
        assert_eq!(inbox.to_vec(0..5).unwrap(), b"hello");

        server.post_recv(9, [inbox.sge_all()]).unwrap();
        let (one, one_channel, other, other_channel) = if client_ends {
            (&client, &world.a_channel, server, &world.b_channel)
        } else {
            (server, &world.b_channel, &client, &world.a_channel)
        };
        one.disconnect().unwrap();
        assert_eq!(one.qp().unwrap().query().state, State::Err);
        assert_eq!(expect(other_channel, EventKind::Disconnected).id(), other);
        assert_eq!(other.qp().unwrap().query().state, State::Rts, "until the program ends it, too");
        other.disconnect().unwrap();
        assert_eq!(other.qp().unwrap().query().state, State::Err);
        assert_eq!(expect(one_channel, EventKind::Disconnected).id(), one);
        let flushed = server.get_recv_comp().unwrap();
        assert_eq!((flushed.wr_id, flushed.result.is_err()), (9, true));
        for (id, channel) in [(one, one_channel), (other, other_channel)] {
            assert_eq!(expect(channel, EventKind::TimewaitExit).id(), id);
            assert_eq!(id.state(), IdState::Closed);
            assert!(matches!(id.disconnect(), Err(CmError::State(IdState::Closed))));
        }
        world.assert_gone();
    }
}

/// Completions precede the event of a connection's end: alternating polls miss nothing.
#[test]
fn completions_come_before_the_end() {
    let world = World::new(PortSpace::Tcp);
    let options = OpenOptions { progress: Progress::Manual, ..OpenOptions::default() };
    let context = world.fabric.open("10.0.0.3".parse().unwrap(), options).unwrap();
    let channel = EventChannel::new().unwrap();
    let client = channel.create_id(PortSpace::Tcp);
    client.set_context(&context).unwrap();
    super::resolve(&channel, &client, world.address());
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    let server = accept(&world.request());
    eventually("not connected", || channel.poll().is_some());
    assert_eq!(expect(&world.b_channel, EventKind::Established).id(), &server);

    let (inbox, outbox) = (server.reg_msgs(8).unwrap(), client.reg_msgs(8).unwrap());
    server.post_recv(1, [inbox.sge_all()]).unwrap();
    client.post_send(2, outbox.sge_all(), SendFlags::SIGNALED).unwrap();
    assert!(server.get_recv_comp().unwrap().result.is_ok());
    server.disconnect().unwrap(); // The acknowledgement was sent before; neither is received yet.
    assert!(channel.poll().is_none());
    let completion = client.send_cq().unwrap().poll_one().unwrap();
    assert_eq!((completion.wr_id, completion.result.is_ok()), (2, true));
    assert_eq!(channel.poll().unwrap().kind(), EventKind::Disconnected);
}

/// Each side responds to as many at once as the other has outstanding, within both limits.
#[test]
fn numbers_cross_over_and_fit() {
    let world = World::new(PortSpace::Tcp);
    let param = ConnParam {
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 6,
        rnr_retry_count: 4,
        ..ConnParam::default()
    };
    let client = world.client();
    client.set_ack_timeout(13).unwrap();
    client.set_min_rnr_timer(9).unwrap();
    client.set_tos(0x48);
    client.connect(&param).unwrap();
    let request = world.request();
    let requested = request.conn().unwrap();
    assert_eq!(
        (requested.responder_resources, requested.initiator_depth),
        (5, 3),
        "seen from the other side"
    );
    assert_eq!((requested.retry_count, requested.rnr_retry_count), (6, 4));
    let server = request.id();
    server.create_qp(None, &CmQpAttr::default()).unwrap();
    server
        .accept(&ConnParam {
            responder_resources: 255,
            initiator_depth: 9,
            rnr_retry_count: 1,
            ..ConnParam::default()
        })
        .unwrap();
    let established = expect(&world.a_channel, EventKind::Established);
    let answered = established.conn().unwrap();
    assert_eq!((answered.responder_resources, answered.initiator_depth), (3, 5));
    let (a, b) = (client.qp().unwrap().query(), server.qp().unwrap().query());
    assert_eq!(
        (
            a.responder.max_dest_rd_atomic,
            a.requester.max_rd_atomic,
            b.responder.max_dest_rd_atomic,
            b.requester.max_rd_atomic
        ),
        (3, 5, 5, 3)
    );
    assert_eq!(
        (
            a.requester.retry_cnt,
            b.requester.retry_cnt,
            a.requester.rnr_retry,
            b.requester.rnr_retry
        ),
        (6, 6, 1, 4)
    );
    assert_eq!(
        (
            a.requester.timeout,
            b.requester.timeout,
            a.responder.min_rnr_timer,
            b.responder.min_rnr_timer
        ),
        (13, 13, 9, 12)
    );
    assert_eq!(
        (a.dest_qpn, b.dest_qpn, a.path_mtu, b.path_mtu),
        (b.qpn, a.qpn, a.path_mtu, a.path_mtu)
    );
    let av = a.av.unwrap();
    let flow_label = (u32::from(client.src_port()) * 31 + u32::from(client.dst_port())) & 0xF_FFFF;
    assert_eq!((av.flow_label, av.traffic_class, av.hop_limit), (flow_label, 0x48, 64));
    assert_eq!((b.av.unwrap().flow_label, b.av.unwrap().traffic_class), (flow_label, 0x48));
    assert!(a.access.contains(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC));
}

#[test]
fn private_data_has_its_limits() {
    let world = World::new(PortSpace::Tcp);
    let data: Vec<u8> = (1..=200).collect();
    let with =
        |length: usize| ConnParam { private_data: data[..length].to_vec(), ..ConnParam::default() };
    let client = world.client();
    assert!(matches!(client.connect(&with(57)), Err(CmError::PrivateData(56))));
    client.connect(&with(56)).unwrap();
    let request = world.request();
    assert_eq!(request.private_data(), &data[..56]);
    let server = request.id();
    server.create_qp(None, &CmQpAttr::default()).unwrap();
    assert!(matches!(server.accept(&with(197)), Err(CmError::PrivateData(196))));
    server.accept(&with(196)).unwrap();
    assert_eq!(expect(&world.a_channel, EventKind::Established).private_data(), &data[..196]);
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam::default());
    assert!(matches!(request.id().reject(&data[..149]), Err(CmError::PrivateData(148))));
    request.id().reject(&data[..148]).unwrap();
    let rejected = expect(&world.a_channel, EventKind::Rejected);
    assert_eq!((rejected.id(), rejected.private_data()), (&client, &data[..148]));
}

#[test]
fn queue_pairs_of_the_programs_own() {
    let world = World::new(PortSpace::Tcp);
    let (mine, yours) = (world.client(), world.client());
    let (a_qp, b_pd) = (mine.qp().unwrap(), world.b.alloc_pd().unwrap());
    let b_cq = world.b.create_cq(4, None).unwrap();
    let b_qp = b_pd.create_qp(&roce::QpInitAttr::new(QpType::Rc, &b_cq)).unwrap();
    b_qp.to_init(roce::Init::default()).unwrap();
    drop(yours);
    let client = world.bare_client();
    assert!(matches!(client.connect(&ConnParam::default()), Err(CmError::NoQueuePair)));
    client.connect(&ConnParam { qpn: Some(a_qp.qpn()), ..ConnParam::default() }).unwrap();
    let request = world.request();
    let server = request.id();
    assert!(matches!(server.accept(&ConnParam::default()), Err(CmError::NoQueuePair)));
    server.accept(&ConnParam { qpn: Some(b_qp.qpn()), ..ConnParam::default() }).unwrap();
    assert_eq!(b_qp.query().state, State::Init);
    assert_eq!(
        expect(&world.a_channel, EventKind::ConnectResponse).conn().unwrap().qpn,
        Some(b_qp.qpn())
    );
    assert_eq!(client.state(), IdState::ResponseReceived);
    for (id, qp) in [(&client, &a_qp), (server, &b_qp)] {
        let setup = id.qp_setup().unwrap();
        let (dest_qpn, path_mtu, max_dest_rd_atomic) =
            (setup.dest_qpn, setup.path_mtu.unwrap(), setup.max_dest_rd_atomic);
        let (rq_psn, av, min_rnr_timer) = (setup.rq_psn, setup.av, setup.min_rnr_timer);
        qp.to_rtr(Rtr::Rc(
            PeerAttr { dest_qpn, path_mtu, rq_psn, av },
            ResponderAttr { max_dest_rd_atomic, min_rnr_timer },
        ))
        .unwrap();
        let (sq_psn, timeout, retry_cnt, rnr_retry) =
            (setup.sq_psn, setup.timeout, setup.retry_cnt, setup.rnr_retry);
        qp.to_rts(Rts::Rc(
            sq_psn,
            RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic: setup.max_rd_atomic },
        ))
        .unwrap();
    }
    client.establish().unwrap();
    assert_eq!(client.state(), IdState::Established);
    assert_eq!(expect(&world.b_channel, EventKind::Established).id(), server);
    assert!(world.a_channel.poll().is_none(), "no event follows establish");
    let region = mine.reg_msgs(8).unwrap();
    b_qp.post_recv(&[roce::RecvWr::new(1, [])]).unwrap();
    mine.post_send(1, region.sge(0..0), SendFlags::SIGNALED).unwrap();
    mine.get_send_comp().unwrap().result.unwrap();
}

/// A passive side may query attributes before accepting: the peer gets the same numbers.
#[test]
fn a_queue_pair_that_is_moved_before_its_request_is_accepted() {
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam {
        responder_resources: 3,
        initiator_depth: 5,
        ..ConnParam::default()
    });
    let server = request.id();
    let early = server.qp_setup().unwrap();
    assert_eq!((early.max_dest_rd_atomic, early.max_rd_atomic, early.min_rnr_timer), (5, 3, 12));
    assert_eq!(server.qp_setup(), Some(early));
    server.accept(&ConnParam { qpn: Some(roce::Qpn::new(77)), ..ConnParam::default() }).unwrap();
    let late = server.qp_setup().unwrap();
    assert_eq!(
        (late.rq_psn, late.sq_psn, late.dest_qpn),
        (early.rq_psn, early.sq_psn, early.dest_qpn)
    );
    expect(&world.a_channel, EventKind::Established);
    assert_eq!(client.qp().unwrap().query().sq_psn, early.rq_psn);
    // The RTU may come before the program moves its queue pair.
    expect(&world.b_channel, EventKind::Established);
    assert_eq!(server.qp_setup(), Some(late));
}

#[test]
fn queue_pairs_that_an_id_adopts() {
    for qp_goes_first in [true, false] {
        let world = World::new(PortSpace::Tcp);
        let client = world.bare_client();
        let (a_pd, a_cq) = (world.a.alloc_pd().unwrap(), world.a.create_cq(4, None).unwrap());
        let make = |qp_type| a_pd.create_qp(&roce::QpInitAttr::new(qp_type, &a_cq)).unwrap();
        let a_qp = make(QpType::Rc);
        assert!(matches!(
            client.adopt_qp(&make(QpType::Ud)),
            Err(CmError::WrongService(QpType::Ud))
        ));
        client.adopt_qp(&a_qp).unwrap();
        assert_eq!(a_qp.query().state, State::Init);
        assert!(matches!(client.adopt_qp(&make(QpType::Rc)), Err(CmError::HasQueuePair)));
        assert!(matches!(client.create_qp(None, &CmQpAttr::default()), Err(CmError::HasQueuePair)));
        client.connect(&ConnParam::default()).unwrap();
        let request = world.request();
        assert!(
            matches!(request.id().adopt_qp(&a_qp), Err(CmError::Object(_))),
            "of another device"
        );
        let server = accept(&request);
        assert_eq!(expect(&world.a_channel, EventKind::Established).id(), &client);
        assert_eq!(expect(&world.b_channel, EventKind::Established).id(), &server);
        assert_eq!(a_qp.query().state, State::Rts);
        client.disconnect().unwrap();
        assert_eq!(a_qp.query().state, State::Err);
        expect(&world.b_channel, EventKind::Disconnected);
        let kept = a_qp.clone();
        if qp_goes_first {
            drop((a_qp, kept));
            drop(client);
        } else {
            drop(client);
            assert_eq!(kept.query().state, State::Err, "the program's");
        }
    }
}

#[test]
fn an_adopted_queue_pair_is_let_go_of() {
    let world = World::new(PortSpace::Tcp);
    let client = world.bare_client();
    let (pd, cq) = (world.a.alloc_pd().unwrap(), world.a.create_cq(4, None).unwrap());
    let [first, second] =
        [(); 2].map(|()| pd.create_qp(&roce::QpInitAttr::new(QpType::Rc, &cq)).unwrap());
    client.adopt_qp(&first).unwrap();
    client.destroy_qp();
    client.adopt_qp(&second).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    assert_eq!(world.request().conn().unwrap().qpn, Some(second.qpn()));
    assert_eq!(first.query().state, State::Init);
}

#[test]
fn extended_reliable_connections() {
    let world = World::with(PortSpace::Ib, 4, |id| id.set_qp_type(QpType::XrcTarget).unwrap());
    let client = world.a_channel.create_id(PortSpace::Ib);
    client.set_context(&world.a).unwrap();
    client.set_qp_type(QpType::XrcInitiator).unwrap();
    super::resolve(&world.a_channel, &client, world.address());
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    let request = world.request();
    let server = request.id();
    assert_eq!(server.qp_type(), QpType::XrcTarget);
    let xrcd = world.b.open_xrcd().unwrap();
    let target = xrcd.create_target().unwrap();
    server.adopt_qp(&target).unwrap();
    server.accept(&ConnParam::default()).unwrap();
    assert_eq!(
        expect(&world.a_channel, EventKind::Established).conn().unwrap().qpn,
        Some(target.qpn())
    );
    expect(&world.b_channel, EventKind::Established);
    let initiator = client.qp().unwrap();
    assert_eq!((initiator.query().state, target.query().state), (State::Rts, State::Rts));
    assert_eq!(
        (initiator.query().dest_qpn, target.query().dest_qpn),
        (target.qpn(), initiator.qpn())
    );
}

#[test]
fn an_id_carries_a_number_of_the_programs() {
    let world = World::new(PortSpace::Tcp);
    world.listener.set_user_data(7);
    let (client, request) = world.call(&ConnParam::default());
    assert_eq!((client.user_data(), request.id().user_data()), (0, 0));
    assert_eq!(request.listen_id().unwrap().user_data(), 7);
}

#[test]
fn unreliable_connections() {
    let world = World::with(PortSpace::Ib, 4, |id| id.set_qp_type(QpType::Uc).unwrap());
    let (client, server) = world.connected();
    assert_eq!((client.qp_type(), server.qp_type()), (QpType::Uc, QpType::Uc));
    assert_eq!(
        (client.qp().unwrap().query().state, server.qp().unwrap().query().state),
        (State::Rts, State::Rts)
    );
}

#[test]
fn notify_replaces_a_lost_rtu() {
    let world = World::new(PortSpace::Tcp);
    let (client, request) = world.call(&ConnParam::default());
    let server = request.id();
    server.create_qp(None, &CmQpAttr::default()).unwrap();
    assert!(matches!(server.notify(), Err(CmError::State(IdState::RequestReceived))));
    server.accept(&ConnParam::default()).unwrap();
    expect(&world.a_channel, EventKind::Established);
    server.notify().unwrap();
    assert_eq!(expect(&world.b_channel, EventKind::Established).id(), server);
    server.notify().unwrap();
    drop(client);
    assert_eq!(expect(&world.b_channel, EventKind::Disconnected).id(), server);
}

#[test]
fn dropping_an_id_ends_its_connection() {
    let world = World::new(PortSpace::Tcp);
    let (client, server) = world.connected();
    let again = client.clone();
    drop(client);
    assert!(world.b_channel.poll().is_none());
    assert_eq!(again.state(), IdState::Established);
    drop(again);
    assert_eq!(expect(&world.b_channel, EventKind::Disconnected).id(), &server);
    drop(server);
    world.assert_gone();
}

#[test]
fn events_go_with_their_id() {
    let world = World::new(PortSpace::Tcp);
    let (first, second) = (world.bare_client(), world.bare_client());
    let (left, right) =
        (world.a_channel.create_id(PortSpace::Tcp), world.a_channel.create_id(PortSpace::Tcp));
    for id in [&left, &right] {
        id.set_context(&world.a).unwrap();
        id.resolve_addr(None, world.address(), PATIENCE).unwrap();
    }
    drop(left);
    assert_eq!(expect(&world.a_channel, EventKind::AddrResolved).id(), &right);
    drop((first, second));
    world.assert_silent();
}

#[test]
fn ids_migrate_with_their_events() {
    let world = World::new(PortSpace::Tcp);
    let client = world.client();
    client.connect(&ConnParam::default()).unwrap();
    eventually("the request comes", || world.b.cm_count() == 1);
    let other = EventChannel::new().unwrap();
    world.listener.migrate_id(&other);
    assert!(world.b_channel.poll().is_none());
    let request = expect(&other, EventKind::ConnectRequest);
    let server = accept(&request);
    assert_eq!(expect(&other, EventKind::Established).id(), &server);
    assert_eq!(expect(&world.a_channel, EventKind::Established).id(), &client);
    server.migrate_id(&world.b_channel);
    client.disconnect().unwrap();
    assert_eq!(expect(&world.b_channel, EventKind::Disconnected).id(), &server);
    drop((request, server, client));
    // a withdrawn request
    let client = world.client();
    client.connect(&ConnParam::default()).unwrap();
    eventually("the request comes", || descriptor_is_readable(&other, 0));
    world.listener.migrate_id(&world.b_channel);
    assert!(!descriptor_is_readable(&other, 0));
    drop(client);
    eventually("it is taken back", || !descriptor_is_readable(&world.b_channel, 0));
    assert!(world.b_channel.poll().is_none());
}

fn descriptor_is_readable(channel: &EventChannel, limit: u64) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    let limit = Timespec::try_from(std::time::Duration::from_millis(limit)).unwrap();
    poll(&mut polled, Some(&limit)) == Ok(1)
}

#[test]
fn the_descriptor_tells() {
    let world = World::new(PortSpace::Tcp);
    assert!(!descriptor_is_readable(&world.b_channel, 0));
    for _ in 0..20 {
        let client = world.client();
        client.connect(&ConnParam::default()).unwrap();
        assert!(descriptor_is_readable(&world.b_channel, 20_000));
        let request = world.b_channel.poll().unwrap();
        assert_eq!(request.kind(), EventKind::ConnectRequest);
        assert!(world.b_channel.poll().is_none());
        let server = accept(&request);
        assert!(descriptor_is_readable(&world.a_channel, 20_000));
        assert_eq!(world.a_channel.poll().unwrap().kind(), EventKind::Established);
        assert!(descriptor_is_readable(&world.b_channel, 20_000));
        assert_eq!(world.b_channel.poll().unwrap().id(), &server);
        assert!(!descriptor_is_readable(&world.b_channel, 0));
    }
}

#[test]
fn waiting_has_an_end() {
    let world = World::new(PortSpace::Tcp);
    let limit = std::time::Duration::from_millis(5);
    assert!(matches!(world.b_channel.wait(Some(limit)), Err(ChannelError::TimedOut)));
    // a channel without devices
    assert!(matches!(EventChannel::new().unwrap().wait(Some(limit)), Err(ChannelError::TimedOut)));
}

#[test]
fn a_device_talks_to_itself() {
    let world = World::new(PortSpace::Tcp);
    let client = world.b_channel.create_id(PortSpace::Tcp);
    client.set_context(&world.b).unwrap();
    super::resolve(&world.b_channel, &client, world.address());
    client.create_qp(None, &CmQpAttr::default()).unwrap();
    client.connect(&ConnParam::default()).unwrap();
    let server = accept(&world.request());
    let mut established =
        [next(&world.b_channel), next(&world.b_channel)].map(|event| event.id().clone());
    if established[0] != client {
        established.swap(0, 1);
    }
    assert!(established == [client.clone(), server.clone()]);
    let (inbox, outbox) = (server.reg_msgs(8).unwrap(), client.reg_msgs(8).unwrap());
    server.post_recv(1, [inbox.sge_all()]).unwrap();
    client.post_send(2, outbox.sge_all(), SendFlags::SIGNALED).unwrap();
    server.get_recv_comp().unwrap().result.unwrap();
    client.get_send_comp().unwrap().result.unwrap();
}
