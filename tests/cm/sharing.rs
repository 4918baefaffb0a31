use std::{
    io::{PipeReader, Read, Write},
    net::{IpAddr, SocketAddr},
};

use roce::{
    Context, Device, OpenOptions,
    cm::{CmId, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace, RejectReason, Status},
};

use super::{
    accept, expect,
    forked::{fork, wait},
    port, resolve, watchdog,
};

struct Program {
    context: Context,
    channel: EventChannel,
}

fn programs<const N: usize>(last: u8) -> (IpAddr, [Program; N]) {
    watchdog::start(roce_provider::describe_engines);
    let address: IpAddr = format!("127.81.{}.{last}", std::process::id() as u8).parse().unwrap();
    let open = || Device::at(address).unwrap().open(OpenOptions::default()).unwrap();
    (
        address,
        std::array::from_fn(|_| Program { context: open(), channel: EventChannel::new().unwrap() }),
    )
}

impl Program {
    fn id(&self, space: PortSpace) -> CmId {
        let id = self.channel.create_id(space);
        id.set_context(&self.context).unwrap();
        id
    }

    fn listen(&self, space: PortSpace, address: IpAddr) -> CmId {
        let id = self.id(space);
        id.bind_addr(SocketAddr::new(address, port())).unwrap();
        id.listen(4).unwrap();
        id
    }

    fn call(&self, space: PortSpace, to: SocketAddr) -> CmId {
        let id = self.id(space);
        resolve(&self.channel, &id, to);
        id.create_qp(None, &CmQpAttr::default()).unwrap();
        id.connect(&ConnParam::default()).unwrap();
        id
    }
}

#[test]
fn each_gets_the_requests_for_its_listener() {
    let (address, programs) = programs::<3>(1);
    for space in [PortSpace::Tcp, PortSpace::Udp] {
        let listeners = programs.each_ref().map(|program| program.listen(space, address));
        for (server, listener) in programs.iter().zip(&listeners) {
            for client in &programs {
                let id = client.call(space, listener.local_addr().unwrap());
                let request = expect(&server.channel, EventKind::ConnectRequest);
                assert_eq!(request.listen_id(), Some(listener));
                let accepted = accept(&request);
                if space == PortSpace::Udp {
                    assert_eq!(expect(&client.channel, EventKind::Established).id(), &id);
                    continue;
                }
                let mut established = vec![&client.channel, &server.channel];
                established.dedup_by_key(|channel| std::ptr::from_ref(*channel));
                for channel in established.iter().cycle().take(2) {
                    expect(channel, EventKind::Established);
                }
                id.disconnect().unwrap();
                expect(&server.channel, EventKind::Disconnected);
                accepted.disconnect().unwrap();
                expect(&client.channel, EventKind::Disconnected);
            }
        }
    }
}

#[test]
fn no_listener_in_any_of_them() {
    let (address, [first, second]) = programs::<2>(2);
    for program in [&second, &first] {
        let listener = second.listen(PortSpace::Tcp, address);
        let to = listener.local_addr().unwrap();
        drop(listener);
        let _id = program.call(PortSpace::Tcp, to);
        let event = expect(&program.channel, EventKind::Rejected);
        assert_eq!(event.status(), Status::Rejected(RejectReason::INVALID_SERVICE_ID));
    }
}

#[test]
fn the_next_owner_knows_the_listeners() {
    let (address, [first, second, third]) = programs::<3>(3);
    let listeners = [&second, &third].map(|program| program.listen(PortSpace::Tcp, address));
    drop(first);
    for (server, listener) in [&second, &third].into_iter().zip(&listeners) {
        for client in [&second, &third] {
            let id = client.call(PortSpace::Tcp, listener.local_addr().unwrap());
            let _accepted = accept(&expect(&server.channel, EventKind::ConnectRequest));
            expect(&client.channel, EventKind::Established);
            expect(&server.channel, EventKind::Established);
            drop(id);
            expect(&server.channel, EventKind::Disconnected);
        }
    }
}

/// In another process; the number names the failure.
fn other_process(mut told: PipeReader, to: SocketAddr) -> i32 {
    if told.read_exact(&mut [0]).is_err() {
        return 1;
    }
    let Ok(context) = Device::at(to.ip()).and_then(|device| device.open(OpenOptions::default()))
    else {
        return 2;
    };
    let program = Program { context, channel: EventChannel::new().unwrap() };
    // The port is taken as in one process; another port or port space is free.
    let all = SocketAddr::new([0, 0, 0, 0].into(), to.port());
    let next = SocketAddr::new(to.ip(), port());
    let table = [
        (PortSpace::Tcp, to, false, libc::EADDRINUSE),
        (PortSpace::Tcp, to, true, libc::EADDRINUSE),
        (PortSpace::Tcp, all, false, libc::EADDRNOTAVAIL),
        (PortSpace::Tcp, all, true, libc::EADDRNOTAVAIL),
        (PortSpace::Tcp, next, false, 0),
        (PortSpace::Udp, to, false, 0),
    ];
    for (space, address, reuse, wanted) in table {
        let id = program.id(space);
        id.set_reuse_addr(reuse).unwrap();
        let result = id.bind_addr(address).and_then(|()| id.listen(1));
        let got = result.err().map_or(0, |error| error.errno());
        assert_eq!(got, wanted, "{space:?} {address} {reuse}");
    }
    let _id = program.call(PortSpace::Tcp, to);
    expect(&program.channel, EventKind::Established);
    0
}

#[test]
fn a_port_is_one_processs_at_an_address() {
    let (address, [first, second]) = programs::<2>(4);
    for program in [first, second] {
        let to = SocketAddr::new(address, port());
        let (told, mut tell) = std::io::pipe().unwrap();
        let child = fork(|| other_process(told, to));
        let listener = program.id(PortSpace::Tcp);
        listener.bind_addr(to).unwrap();
        listener.listen(4).unwrap();
        tell.write_all(b"!").unwrap();
        let _accepted = accept(&expect(&program.channel, EventKind::ConnectRequest));
        let status = wait(child);
        assert!(status.success(), "where the child failed: {status}");
    }
}
