//! Synchronous ids.

use std::{net::SocketAddr, thread};

use roce::{
    QpType, Remote, SendFlags,
    cm::{
        AddrInfo, CmError, CmId, CmQpAttr, ConnParam, EventKind, IdState, PortSpace, RejectReason,
        Status, getaddrinfo,
    },
};

use super::{PATIENCE, World};

fn endpoint(world: &World, qp_type: QpType) -> CmId {
    let info = AddrInfo {
        passive: false,
        port_space: world.port_space(),
        qp_type,
        src: Some(SocketAddr::new(super::A.parse().unwrap(), 0)),
        dst: Some(world.address()),
    };
    CmId::create_ep(&info, Some(&world.a.alloc_pd().unwrap()), Some(&CmQpAttr::default())).unwrap()
}

fn serve(world: &World, serve: impl FnOnce(CmId) + Send + 'static) -> thread::JoinHandle<()> {
    world.listener.make_sync().unwrap();
    let listener = world.listener.clone();
    thread::spawn(move || serve(listener.get_request().unwrap()))
}

#[test]
fn calls_that_wait() {
    let world = World::new(PortSpace::Tcp);
    let server = serve(&world, |id| {
        assert_eq!(id.event().unwrap().private_data()[..5], *b"hello");
        id.create_qp(None, &CmQpAttr::default()).unwrap();
        // The client may write here, and receives the address.
        let target = id.reg_write(4096).unwrap();
        let Remote { address, rkey } = target.remote(0);
        let told = [&address.to_be_bytes()[..], &rkey.0.to_be_bytes()].concat();
        let inbox = id.reg_msgs(8).unwrap();
        id.post_recv(1, [inbox.sge_all()]).unwrap();
        id.accept(&ConnParam { private_data: told, ..ConnParam::default() }).unwrap();
        id.get_recv_comp().unwrap().result.unwrap();
        assert_eq!(target.to_vec(0..7).unwrap(), b"written");
        target.write_at(0, b"answer!").unwrap();
        // the peer disconnects
        let over = id.channel().wait(Some(PATIENCE)).unwrap();
        assert_eq!(over.kind(), EventKind::Disconnected);
        id.disconnect().unwrap();
    });
    let client = endpoint(&world, QpType::Rc);
    client.connect(&ConnParam { private_data: b"hello".to_vec(), ..ConnParam::default() }).unwrap();
    let told = client.event().unwrap();
    assert_eq!((told.kind(), told.id()), (EventKind::Established, &client));
    let told = told.private_data();
    let remote = Remote {
        address: u64::from_be_bytes(told[..8].try_into().unwrap()),
        rkey: roce::RKey(u32::from_be_bytes(told[8..12].try_into().unwrap())),
    };
    let memory = client.reg_msgs(64).unwrap();
    memory.write_at(0, b"written").unwrap();
    client.post_write(1, memory.sge(0..7), SendFlags::SIGNALED, remote).unwrap();
    client.get_send_comp().unwrap().result.unwrap();
    client.post_send(2, roce::Data::inline(b"done"), SendFlags::SIGNALED).unwrap();
    client.get_send_comp().unwrap().result.unwrap();
    // memory for WRITE is not for READ
    client.post_read(3, memory.sge(8..15), SendFlags::SIGNALED, remote).unwrap();
    assert!(client.get_send_comp().unwrap().result.is_err());
    client.disconnect().unwrap();
    assert_eq!(client.state(), IdState::Disconnected);
    assert!(matches!(client.disconnect(), Ok(())), "which waits for nothing more");
    server.join().unwrap();
}

#[test]
fn calls_that_wait_in_vain() {
    let world = World::new(PortSpace::Tcp);
    let server = serve(&world, |id| id.reject(b"").unwrap());
    let client = endpoint(&world, QpType::Rc);
    let error = client.connect(&ConnParam::default()).unwrap_err();
    let refused = Status::Rejected(RejectReason::CONSUMER);
    assert!(
        matches!(error, CmError::Failed { event: EventKind::Rejected, status } if status == refused),
        "{error}"
    );
    assert_eq!(error.errno(), 111);
    server.join().unwrap();
    let id = CmId::new_sync(PortSpace::Tcp).unwrap();
    let error = id.resolve_addr(None, "127.255.255.255:1".parse().unwrap(), PATIENCE).unwrap_err();
    assert!(matches!(error, CmError::Failed { event: EventKind::AddrError, .. }), "{error}");
    assert_eq!(error.errno(), 13);
    world.cut();
    let client = endpoint(&world, QpType::Rc);
    assert_eq!(client.connect(&ConnParam::default()).unwrap_err().errno(), 110);
}

#[test]
fn endpoints_for_requests_have_queue_pairs() {
    let world = World::new(PortSpace::Tcp);
    let info = AddrInfo {
        passive: true,
        port_space: PortSpace::Tcp,
        qp_type: QpType::Rc,
        src: Some(SocketAddr::new(super::B.parse().unwrap(), super::port())),
        dst: None,
    };
    let pd = world.b.alloc_pd().unwrap();
    let listener = CmId::create_ep(&info, Some(&pd), Some(&CmQpAttr::default())).unwrap();
    assert_eq!(listener.state(), IdState::Bound);
    listener.listen(1).unwrap();
    let active = AddrInfo { passive: false, src: None, dst: listener.local_addr(), ..info };
    let a_pd = world.a.alloc_pd().unwrap();
    let client = thread::spawn(move || {
        let client = CmId::create_ep(&active, Some(&a_pd), Some(&CmQpAttr::default())).unwrap();
        client.connect(&ConnParam::default()).unwrap();
    });
    let server = listener.get_request().unwrap();
    assert!(server.qp().is_some());
    server.accept(&ConnParam::default()).unwrap();
    client.join().unwrap();
}

/// As in rdma_getaddrinfo(3), no device named.
#[test]
fn by_name() {
    let device =
        roce::Device::named("roce_lo").unwrap().open(roce::OpenOptions::default()).unwrap();
    let own = device.gids()[0].to_ip().to_string();
    let hints = roce::cm::AddrInfoHints { passive: true, ..Default::default() };
    let info = getaddrinfo(Some(&own), None, &hints).unwrap();
    let listener = CmId::create_ep(&info[0], None, Some(&CmQpAttr::default())).unwrap();
    listener.listen(1).unwrap();
    assert_eq!(listener.context().unwrap().gids(), device.gids());
    let port = listener.src_port().to_string();
    let client = thread::spawn(move || {
        let info =
            getaddrinfo(Some(&own), Some(&port), &roce::cm::AddrInfoHints::default()).unwrap();
        let client = CmId::create_ep(&info[0], None, Some(&CmQpAttr::default())).unwrap();
        client.connect(&ConnParam::default()).unwrap();
        let memory = client.reg_msgs(16).unwrap();
        client.post_send(1, memory.sge_all(), SendFlags::SIGNALED).unwrap();
        client.get_send_comp().unwrap().result.unwrap();
        client.disconnect().unwrap();
    });
    let server = listener.get_request().unwrap();
    let inbox = server.reg_msgs(16).unwrap();
    server.post_recv(1, [inbox.sge_all()]).unwrap();
    server.accept(&ConnParam::default()).unwrap();
    assert_eq!(server.get_recv_comp().unwrap().result.unwrap().byte_len, 16);
    drop(server);
    client.join().unwrap();
}
