use std::{
    io::{self, Read, Write},
    net::IpAddr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::mpsc::{Receiver, Sender, channel},
    time::Instant as StdInstant,
};

use roce::{
    AttachError, Context, Device, Mtu, OpenOptions, Progress, QpInitAttr, QpType, RecvWr, SendWr,
    link::{Datagram, Link},
    transport::{
        adapter::{SourcePort, Transmit, TransmitLimits},
        time::Instant,
        wire::NetHeader,
    },
};

use super::{PATIENCE, Side, connect, noise};

/// std channels for datagrams, sockets for wake-ups.
pub(super) struct Wire {
    own: IpAddr,
    to_peer: Sender<(NetHeader, Vec<u8>)>,
    from_peer: Receiver<(NetHeader, Vec<u8>)>,
    wake_peer: UnixStream,
    woken: UnixStream,
}

pub(super) fn wire() -> [Wire; 2] {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let ((wake_b, woken_b), (wake_a, woken_a)) =
        (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    for socket in [&wake_a, &wake_b, &woken_a, &woken_b] {
        socket.set_nonblocking(true).unwrap();
    }
    let end = |host, to_peer, from_peer, wake_peer, woken| Wire {
        own: [10, 0, 0, host].into(),
        to_peer,
        from_peer,
        wake_peer,
        woken,
    };
    [end(1, to_b, from_b, wake_b, woken_a), end(2, to_a, from_a, wake_a, woken_b)]
}

impl Link for Wire {
    fn addresses(&self) -> Vec<IpAddr> {
        vec![self.own]
    }

    fn limits(&self) -> TransmitLimits {
        TransmitLimits { segments: 16, bytes: 65_000 }
    }

    fn source_port(&self) -> SourcePort {
        SourcePort::PerFlow
    }

    fn send(&mut self, _: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        for run in runs {
            for (index, datagram) in bytes[run.range.clone()].chunks(run.segment).enumerate() {
                let packet = (run.net_header(index), datagram.to_vec());
                self.to_peer.send(packet).map_err(|_| io::ErrorKind::BrokenPipe)?;
            }
        }
        let _ = self.wake_peer.write(&[0]); // a full socket is already readable
        Ok(runs.len())
    }

    fn receive(&mut self, _: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        let _ = self.woken.read(&mut [0; 4096]);
        let arrived = self.from_peer.try_iter().inspect(|(net, bytes)| {
            sink(&Datagram::new(net, bytes));
        });
        Ok(arrived.count())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.woken.as_fd()]
    }
}

fn open(wire: Wire, options: OpenOptions) -> Context {
    Device::with_link("wire", wire, Mtu::B1024, options).unwrap()
}

/// `b`'s program does not serve.
pub(super) fn exchange(a: &Side, b: &Side) {
    for (round, size) in [0, 1, 1024, 1025, 300_000].into_iter().enumerate() {
        let data = noise(size, round as u32 + 1);
        a.memory.write_at(0, &data).unwrap();
        b.memory.fill(0xEE).unwrap();
        a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..size))]).unwrap();
        a.next().result.unwrap();
        assert!(b.memory.to_vec(0..size).unwrap() == data, "WRITE of {size} bytes");
        b.memory.fill(0xEE).unwrap();
        b.qp.post_recv(&[RecvWr::new(2, [b.memory.sge_all()])]).unwrap();
        a.qp.post_send(&[SendWr::send(3, a.memory.sge(0..size))]).unwrap();
        a.next().result.unwrap();
        assert_eq!(b.next().result.unwrap().byte_len as usize, size);
        assert!(b.memory.to_vec(0..size).unwrap() == data, "SEND of {size} bytes");
    }
}

#[test]
fn messages_go_over_a_link_of_the_programs_own() {
    for faults in ["", "drop 5%, reorder 5%"] {
        let options = || OpenOptions { faults: faults.parse().unwrap(), ..OpenOptions::default() };
        let (a, b) = wire().map(|wire| Side::on(open(wire, options()))).into();
        assert_eq!((a.context.name(), a.context.active_mtu()), ("wire", Mtu::B1024));
        connect(&a, &b);
        exchange(&a, &b);
        let retransmitted = a.context.counters().retransmitted_packets;
        assert!(faults.is_empty() || retransmitted > 0, "what was lost comes again");
        assert_eq!(a.context.link_counters().shared_runs, 0);
    }
}

#[test]
fn a_link_of_the_programs_own_can_be_moved_by_hand() {
    let (a, b) = wire()
        .map(|wire| {
            let options = OpenOptions { progress: Progress::Manual, ..OpenOptions::default() };
            Side::on(open(wire, options))
        })
        .into();
    connect(&a, &b);
    a.memory.write_at(0, b"by hand").unwrap();
    a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), a.memory.sge(0..7))]).unwrap();
    let start = StdInstant::now();
    let wc = loop {
        if let Some(wc) = a.cq.poll_one() {
            break wc;
        }
        b.context.progress();
        assert!(start.elapsed() < PATIENCE);
    };
    wc.result.unwrap();
    assert_eq!(b.memory.to_vec(0..7).unwrap(), b"by hand");
}

#[test]
fn what_a_link_lacks_is_refused() {
    let [wire, _other] = wire();
    let context = open(wire, OpenOptions::default());
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4, None).unwrap());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq)).unwrap();
    let group: IpAddr = [239, 1, 1, 1].into();
    assert!(matches!(qp.attach_mcast(group.into()), Err(AttachError::Join { .. })));
}
