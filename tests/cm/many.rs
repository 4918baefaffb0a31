use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use roce::{
    Device, OpenOptions,
    cm::{CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{World, accept, eventually, expect, next, resolve};

#[test]
fn two_hundred_one_after_another() {
    let world = World::new(PortSpace::Tcp);
    for _ in 0..200 {
        let (client, server) = world.connected();
        client.disconnect().unwrap();
        assert_eq!(expect(&world.b_channel, EventKind::Disconnected).id(), &server);
        server.disconnect().unwrap();
        assert_eq!(expect(&world.a_channel, EventKind::Disconnected).id(), &client);
    }
    eventually("connections are left", || world.a.cm_count() == 0 && world.b.cm_count() == 0);
    assert!(
        world.a_channel.poll().is_none() && world.b_channel.poll().is_none(),
        "events of ids that are gone"
    );
}

#[test]
fn sixty_four_at_once() {
    let world = World::with(PortSpace::Tcp, 64, |_| {});
    let mut clients = BTreeMap::new();
    for number in 0..64_u8 {
        let client = world.client();
        client
            .connect(&ConnParam { private_data: vec![number; 56], ..ConnParam::default() })
            .unwrap();
        clients.insert(number, client);
    }
    let mut servers = Vec::new();
    let mut established = 0;
    while established < 64 {
        let event = next(&world.b_channel);
        match event.kind() {
            EventKind::ConnectRequest => {
                let client = &clients[&event.private_data()[0]];
                assert_eq!(event.id().peer_addr(), client.local_addr());
                servers.push(accept(&event));
            }
            EventKind::Established => established += 1,
            _ => panic!("{event:?}"),
        }
    }
    for _ in 0..64 {
        expect(&world.a_channel, EventKind::Established);
    }
    assert_eq!((world.a.cm_count(), world.b.cm_count()), (64, 64));
    drop(clients);
    for _ in 0..64 {
        expect(&world.b_channel, EventKind::Disconnected);
    }
    drop(servers);
    world.assert_gone();
}

/// Real sockets, a thread, device and channel on each side. A thousand connections take tenths of a
/// second; the limit is for busy machines.
#[test]
fn a_thousand_between_threads() {
    const COUNT: usize = 1000;
    // A connection has two completion channels per side; shells set a lower descriptor limit than
    // possible.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let open = || Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
    let (near, far) = (open(), open());
    let channel = EventChannel::new().unwrap();
    let listener = channel.create_id(PortSpace::Tcp);
    listener.set_context(&far).unwrap();
    listener.listen(0).unwrap();
    let address = listener.listening_addrs()[0];
    let server = thread::spawn(move || {
        let mut ids = Vec::new();
        let mut over = 0;
        while over < COUNT {
            let event = next(&channel);
            match event.kind() {
                EventKind::ConnectRequest => ids.push(accept(&event)),
                EventKind::Established => {}
                EventKind::Disconnected => {
                    event.id().disconnect().unwrap();
                    over += 1;
                }
                EventKind::TimewaitExit => {}
                _ => panic!("{event:?}"),
            }
        }
        drop((listener, ids));
    });
    let channel = EventChannel::new().unwrap();
    let start = Instant::now();
    let mut ids = Vec::new();
    for _ in 0..COUNT {
        let id = channel.create_id(PortSpace::Tcp);
        id.set_context(&near).unwrap();
        id.set_ack_timeout(8).unwrap();
        resolve(&channel, &id, address);
        id.create_qp(None, &CmQpAttr::default()).unwrap();
        id.connect(&ConnParam::default()).unwrap();
        while next(&channel).kind() != EventKind::Established {}
        ids.push(id);
    }
    let took = start.elapsed();
    for id in &ids {
        id.disconnect().unwrap();
    }
    for _ in &ids {
        while next(&channel).kind() != EventKind::Disconnected {}
    }
    server.join().unwrap();
    drop(ids);
    eventually("connections are left", || near.cm_count() == 0 && far.cm_count() == 0);
    println!("{COUNT} connections took {took:?}");
    assert!(took < Duration::from_secs(15), "{COUNT} connections took {took:?}");
}

#[test]
fn threads_share_a_listener() {
    let world = World::with(PortSpace::Tcp, 64, |_| {});
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // The thread that takes a request serves it to its end.
                for _ in 0..20 {
                    let request = loop {
                        let event = next(&world.b_channel);
                        if event.kind() == EventKind::ConnectRequest {
                            break event;
                        }
                    };
                    let own = EventChannel::new().unwrap();
                    request.id().migrate_id(&own);
                    let server = accept(&request);
                    expect(&own, EventKind::Established);
                    expect(&own, EventKind::Disconnected);
                    server.disconnect().unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..20 {
                    let channel = EventChannel::new().unwrap();
                    let client = channel.create_id(PortSpace::Tcp);
                    client.set_context(&world.a).unwrap();
                    resolve(&channel, &client, world.address());
                    client.create_qp(None, &CmQpAttr::default()).unwrap();
                    client.connect(&ConnParam::default()).unwrap();
                    expect(&channel, EventKind::Established);
                    client.disconnect().unwrap();
                    expect(&channel, EventKind::Disconnected);
                }
            });
        }
    });
    world.assert_gone();
}
