use std::net::IpAddr;

use roce::{
    Qpn, SendFlags, State,
    cm::{
        CmError, CmQpAttr, ConnParam, EventKind, IdState, JoinFlags, PortSpace, Status, UDP_QKEY,
    },
};

use super::{World, accept, expect};

#[test]
fn a_service_is_resolved_and_used() {
    let world = World::new(PortSpace::Udp);
    let data: Vec<u8> = (1..=181).collect();
    let with =
        |length: usize| ConnParam { private_data: data[..length].to_vec(), ..ConnParam::default() };
    let client = world.client();
    assert_eq!(client.qp().unwrap().query().state, State::Rts, "ready at once");
    assert!(matches!(client.connect(&with(181)), Err(CmError::PrivateData(180))));
    client.connect(&with(180)).unwrap();
    let request = world.request();
    assert_eq!(
        (request.private_data(), request.ud().unwrap().private_data.len()),
        (&data[..180], 180)
    );
    let server = request.id();
    assert_eq!(server.peer_addr(), client.local_addr());
    server.create_qp(None, &CmQpAttr::default()).unwrap();
    assert!(matches!(server.accept(&with(137)), Err(CmError::PrivateData(136))));
    let inbox = server.reg_msgs(256).unwrap();
    server.post_recv(3, [inbox.sge_all()]).unwrap();
    server.accept(&with(136)).unwrap();
    assert_eq!(server.state(), IdState::Established);
    let established = expect(&world.a_channel, EventKind::Established);
    assert_eq!((established.id(), established.private_data()), (&client, &data[..136]));
    let ud = established.ud().unwrap();
    assert_eq!((ud.qpn, ud.qkey), (server.qp().unwrap().qpn(), UDP_QKEY));

    let outbox = client.reg_msgs(64).unwrap();
    outbox.write_at(0, b"to whom it may concern").unwrap();
    client.post_ud_send(4, outbox.sge(0..22), SendFlags::SIGNALED, ud.destination()).unwrap();
    client.get_send_comp().unwrap().result.unwrap();
    let received = server.get_recv_comp().unwrap();
    assert_eq!((received.wr_id, received.result.unwrap().byte_len), (3, 62));
    assert_eq!(inbox.to_vec(40..62).unwrap(), b"to whom it may concern");
    // an address handle
    let handle = client.pd().unwrap().create_ah(ud.av).unwrap();
    server.post_recv(5, [inbox.sge_all()]).unwrap();
    client
        .post_ud_send(6, outbox.sge(0..1), SendFlags::SIGNALED, handle.to(ud.qpn, ud.qkey))
        .unwrap();
    assert_eq!(server.get_recv_comp().unwrap().wr_id, 5);
    assert!(matches!(client.disconnect(), Err(CmError::WrongService(_))));
    assert_eq!((world.a.cm_count(), world.b.cm_count()), (0, 0), "there is no connection to keep");
    world.assert_silent();
}

#[test]
fn a_service_is_refused_or_does_not_exist() {
    let world = World::new(PortSpace::Udp);
    let (client, request) = world.call(&ConnParam::default());
    request.id().reject(b"no").unwrap();
    let event = expect(&world.a_channel, EventKind::Unreachable);
    assert_eq!(
        (event.id(), event.status(), &event.private_data()[..3]),
        (&client, Status::Sidr(2), &b"no\0"[..])
    );
    let (client, request) = world.call(&ConnParam::default());
    drop(request);
    let event = expect(&world.a_channel, EventKind::Unreachable);
    assert_eq!((event.id(), event.status(), event.status().code()), (&client, Status::Sidr(2), 2));
    let (a_channel, listener) = (&world.a_channel, &world.listener);
    let client = world.client();
    let other = listener.channel();
    drop(other);
    let address = listener.local_addr().unwrap();
    let elsewhere = a_channel.create_id(PortSpace::Udp);
    elsewhere.set_context(&world.a).unwrap();
    super::resolve(a_channel, &elsewhere, std::net::SocketAddr::new(address.ip(), super::port()));
    elsewhere.create_qp(None, &CmQpAttr::default()).unwrap();
    elsewhere.connect(&ConnParam::default()).unwrap();
    let event = expect(a_channel, EventKind::Unreachable);
    assert_eq!(
        (event.id(), event.status(), elsewhere.state()),
        (&elsewhere, Status::Sidr(1), IdState::Closed)
    );
    // no response
    world.cut();
    client.connect(&ConnParam::default()).unwrap();
    let event = expect(a_channel, EventKind::Unreachable);
    assert_eq!((event.id(), event.status()), (&client, Status::Errno(110)));
    assert_eq!((world.a.cm_count(), world.b.cm_count()), (0, 0));
}

/// QPN and Q_Key may be a program's own.
#[test]
fn a_service_of_a_queue_pair_of_the_programs_own() {
    let world = World::new(PortSpace::Ipoib);
    let (client, request) = world.call(&ConnParam::default());
    request
        .id()
        .accept(&ConnParam { qpn: Some(Qpn::new(0x1234)), ..ConnParam::default() })
        .unwrap();
    let established = expect(&world.a_channel, EventKind::Established);
    assert_eq!((established.id(), established.ud().unwrap().qpn), (&client, Qpn::new(0x1234)));
}

#[test]
fn groups() {
    let world = World::new(PortSpace::Udp);
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let (client, request) = world.call(&ConnParam::default());
    let server = accept(&request);
    expect(&world.a_channel, EventKind::Established);
    let inboxes = [client.reg_msgs(256).unwrap(), server.reg_msgs(256).unwrap()];
    for (id, channel, inbox) in
        [(&client, &world.a_channel, &inboxes[0]), (&server, &world.b_channel, &inboxes[1])]
    {
        id.post_recv(1, [inbox.sge_all()]).unwrap();
        id.join_multicast(group).unwrap();
        let joined = expect(channel, EventKind::MulticastJoin);
        let ud = joined.ud().unwrap();
        assert_eq!(
            (joined.id(), ud.qpn, ud.qkey, ud.av.dgid),
            (id, Qpn::MULTICAST, UDP_QKEY, group.into())
        );
        assert_eq!(ud.av.hop_limit, 64);
        assert!(matches!(id.join_multicast(group), Err(CmError::Joined(_))));
        assert!(matches!(id.join_multicast("ff02::5".parse().unwrap()), Err(CmError::Family(_))));
        assert!(matches!(id.join_multicast("10.0.0.7".parse().unwrap()), Err(CmError::Address(_))));
    }
    let to = {
        client.leave_multicast(group).unwrap();
        assert!(matches!(client.leave_multicast(group), Err(CmError::NotJoined(_))));
        client.join_multicast_ex(group, JoinFlags::SendOnlyFullMember).unwrap();
        expect(&world.a_channel, EventKind::MulticastJoin).ud().unwrap().destination()
    };
    let outbox = client.reg_msgs(8).unwrap();
    client.post_ud_send(2, outbox.sge_all(), SendFlags::SIGNALED, to).unwrap();
    assert_eq!(server.get_recv_comp().unwrap().result.unwrap().byte_len, 48);
    client.get_send_comp().unwrap().result.unwrap();
    assert!(
        client.recv_cq().unwrap().poll_one().is_none(),
        "a member that only sends receives nothing"
    );
    server.leave_multicast(group).unwrap();
    // Destroying the id or its queue pair leaves the group.
    server.join_multicast(group).unwrap();
    expect(&world.b_channel, EventKind::MulticastJoin);
    server.destroy_qp();
    client.post_ud_send(3, outbox.sge_all(), SendFlags::SIGNALED, to).unwrap();
    client.get_send_comp().unwrap().result.unwrap();
    server.create_qp(None, &CmQpAttr::default()).unwrap();
    server.post_recv(1, [inboxes[1].sge_all()]).unwrap();
    client.post_ud_send(4, outbox.sge_all(), SendFlags::SIGNALED, to).unwrap();
    client.get_send_comp().unwrap().result.unwrap();
    assert!(server.recv_cq().unwrap().poll_one().is_none(), "the new queue pair is in no group");
    let connected = World::new(PortSpace::Tcp);
    let client = connected.client();
    assert!(matches!(client.join_multicast(group), Err(CmError::WrongService(_))));
}
