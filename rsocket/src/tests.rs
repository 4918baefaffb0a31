//! Both halves without a network, with random timing; and a connection on an in-process network.

use std::{collections::VecDeque, time::Duration};

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_core::RngCore;
use roce_transport::cm::PortSpace;

use super::{
    incoming::{Incoming, Violation},
    outgoing::{Outgoing, Segment},
    settings::Settings,
    stream::Stream,
    wire::{ConnData, Message, RemoteSge},
};
use roce_provider::{
    OpenOptions,
    cm::{EventChannel, EventKind},
    link::Fabric,
};

const TABLE: u32 = 2;

struct OneWay {
    outgoing: Outgoing,
    incoming: Incoming,
    size: u32,
    /// Receiver's memory, and sender's table.
    buffer: Vec<u8>,
    table: [RemoteSge; TABLE as usize],
    /// In flight to the receiver, and back.
    there: VecDeque<(RemoteSge, Vec<u8>)>,
    back: VecDeque<(Message, Option<(u32, RemoteSge)>)>,
    /// Numbers of the next byte sent and read.
    sent: u64,
    read: u64,
    rng: ChaCha8Rng,
}

impl OneWay {
    fn new(seed: u64, credits: u16, size: u32, slots: u32, inline: u32, send_buffer: u32) -> Self {
        let first = RemoteSge { address: 0, key: 7, length: size / 2 };
        Self {
            outgoing: Outgoing::new(credits, first, TABLE, send_buffer, inline, slots),
            incoming: Incoming::new(credits, size, TABLE),
            size,
            buffer: vec![0; size as usize],
            table: [RemoteSge::default(); TABLE as usize],
            there: VecDeque::new(),
            back: VecDeque::new(),
            sent: 0,
            read: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng.next_u64() % limit
    }

    fn look(&mut self) {
        if let Some(index) = self.outgoing.wanted() {
            let entry = std::mem::take(&mut self.table[index as usize]);
            if entry.length > 0 {
                self.outgoing.fill(entry);
            }
        }
    }

    fn send(&mut self, most: usize) {
        let mut left = most;
        while left > 0 {
            self.look();
            let Some(segment) = self.outgoing.next(left) else { break };
            let Segment { address, key, length, .. } = segment;
            assert!(length > 0 && length as usize <= left);
            self.outgoing.post(&segment);
            let bytes = (0..length.into()).map(|at| value(self.sent + at)).collect();
            self.there.push_back((RemoteSge { address, key, length }, bytes));
            self.sent += u64::from(length);
            left -= length as usize;
        }
    }

    fn deliver(&mut self) {
        let Some((sge, bytes)) = self.there.pop_front() else { return };
        assert_eq!(sge.key, 7);
        let at = sge.address as usize;
        self.buffer[at..at + bytes.len()].copy_from_slice(&bytes);
        self.incoming.arrive(sge.length).unwrap();
        self.outgoing.completed();
    }

    fn read(&mut self, most: usize) {
        let mut got = 0;
        loop {
            let (at, bytes) = self.incoming.piece(got as u32, most - got);
            if bytes == 0 {
                break;
            }
            for byte in &self.buffer[at as usize..at as usize + bytes] {
                assert_eq!(*byte, value(self.read), "byte {}", self.read);
                self.read += 1;
            }
            got += bytes;
        }
        self.incoming.consume(got as u32);
    }

    fn grant(&mut self) {
        while self.incoming.is_due() {
            let grant = self.incoming.grant();
            let entry = grant.room.map(|room| {
                assert!(room.offset + room.length <= self.size);
                (room.index, RemoteSge { address: room.offset.into(), key: 7, length: room.length })
            });
            self.back.push_back((Message::Credits(grant.last), entry));
        }
    }

    fn hear(&mut self) {
        let Some((message, entry)) = self.back.pop_front() else { return };
        if let Some((index, sge)) = entry {
            let place = &mut self.table[index as usize];
            assert_eq!(place.length, 0, "an entry that was not used yet is overwritten");
            *place = sge;
        }
        let Message::Credits(last) = message else { panic!("{message:?}") };
        self.outgoing.credit(last);
    }

    fn run(mut self, bytes: u64) {
        let mut idle = 0;
        while self.read < bytes {
            let before = (self.sent, self.read, self.there.len(), self.back.len());
            let most = self.below(3 * u64::from(self.size)) + 1;
            match self.below(5) {
                0 => self.send(most.min(bytes - self.sent) as usize),
                1 => self.deliver(),
                2 => self.read(most as usize),
                3 => self.grant(),
                _ => self.hear(),
            }
            let same = before == (self.sent, self.read, self.there.len(), self.back.len());
            idle = if same { idle + 1 } else { 0 };
            assert!(idle < 1000, "nothing goes on: {:?} {:?}", self.outgoing, self.incoming);
        }
        assert_eq!((self.sent, self.incoming.readable()), (bytes, 0));
        assert!(self.outgoing.is_idle());
    }
}

fn value(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

#[test]
fn every_byte_arrives_in_order_and_nothing_is_overrun() {
    for seed in 0..40 {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut pick = |of: &[u32]| of[dice.next_u32() as usize % of.len()];
        let (credits, size) = (pick(&[2, 3, 16, 384]) as u16, pick(&[4, 100, 4096, 131_072]));
        let (slots, inline, send) =
            (pick(&[1, 16, 384]), pick(&[0, 64, 512]), pick(&[1, 100, 4096, 131_072]));
        let bytes = u64::from(size * 20).min(100 * u64::from(send.max(inline)));
        OneWay::new(seed, credits, size, slots, inline, send).run(bytes);
    }
    // More messages than their numbers have values.
    OneWay::new(99, 16, 32, 16, 1, 1).run(70_000);
}

#[test]
fn a_sender_that_has_no_credits_or_no_room_waits() {
    let mut way = OneWay::new(1, 3, 4096, 16, 64, 4096);
    for _ in 0..4 {
        way.send(1);
    }
    assert_eq!((way.sent, way.outgoing.can_send()), (3, false));
    while !way.there.is_empty() {
        way.deliver();
    }
    way.send(1);
    assert_eq!(way.sent, 3, "what has arrived, but was not read, frees nothing");
    way.read(3);
    way.grant();
    while !way.back.is_empty() {
        way.hear();
    }
    assert!(way.outgoing.can_send());
    way.send(10_000);
    assert_eq!(way.sent, 4096, "both halves, and the rest of the first");
}

#[test]
fn a_full_send_queue_takes_control_messages() {
    let mut way = OneWay::new(1, 384, 4096, 1, 64, 4096);
    way.send(1);
    assert!(!way.outgoing.can_send() && way.outgoing.next(1).is_none());
    let slots = (0..).take_while(|_| way.outgoing.control()).count();
    assert_eq!(slots, 4);
    way.outgoing.completed();
    assert!(way.outgoing.can_send());
    way.outgoing.completed();
    assert!(way.outgoing.control() && !way.outgoing.control());
}

#[test]
fn a_peer_that_sends_too_much_is_found_out() {
    let mut incoming = Incoming::new(2, 1000, TABLE);
    assert_eq!(incoming.arrive(501), Err(Violation), "more than the first half");
    assert_eq!(incoming.arrive(0), Ok(()));
    assert_eq!(incoming.arrive(500), Ok(()));
    assert_eq!(incoming.arrive(0), Err(Violation), "without credits");
    incoming.grant();
    assert_eq!(incoming.arrive(500), Ok(()));
    assert_eq!(incoming.arrive(1), Err(Violation), "without room");
}

#[test]
fn mapped_memory_needs_no_credits() {
    let mut way = OneWay::new(1, 2, 4096, 16, 64, 4096);
    way.send(1);
    way.send(1);
    assert!(!way.outgoing.can_send());
    let to = RemoteSge { address: 99, key: 5, length: 100_000 };
    let first = way.outgoing.direct(to).unwrap();
    assert_eq!(
        (first.address, first.key, first.length),
        (99, 5, 4096),
        "as much as the buffer takes"
    );
    way.outgoing.post_direct(&first);
    assert_eq!(way.outgoing.direct(to), None);
    for _ in 0..3 {
        way.outgoing.completed();
    }
    assert!(way.outgoing.is_idle() && way.outgoing.direct(to).is_some());
}

#[test]
fn data_before_the_response_is_kept() {
    let limit = Some(Duration::from_secs(20));
    let fabric = Fabric::new("".parse().unwrap(), 1);
    let open = |ip: &str| fabric.open(ip.parse().unwrap(), OpenOptions::default()).unwrap();
    let (here, there) = (open("10.9.0.1"), open("10.9.0.2"));
    let (channel, other) = (EventChannel::new().unwrap(), EventChannel::new().unwrap());
    let listener = other.create_id(PortSpace::Tcp);
    listener.set_context(&there).unwrap();
    listener.listen(1).unwrap();

    let id = channel.create_id(PortSpace::Tcp);
    id.set_context(&here).unwrap();
    id.resolve_addr(None, listener.listening_addrs()[0], Duration::ZERO).unwrap();
    id.resolve_route(Duration::ZERO).unwrap();
    for expected in [EventKind::AddrResolved, EventKind::RouteResolved] {
        assert_eq!(channel.wait(limit).unwrap().kind(), expected);
    }
    let mut stream = Stream::new(&id, Settings::of_host()).unwrap();
    id.connect(&stream.conn_param()).unwrap();

    let request = other.wait(limit).unwrap();
    let mut peer = Stream::new(request.id(), Settings::of_host()).unwrap();
    peer.set_peer(ConnData::parse(request.private_data()).unwrap());
    request.id().accept(&peer.conn_param()).unwrap();
    assert_eq!(other.wait(limit).unwrap().kind(), EventKind::Established);
    peer.open();
    let mut source = |bytes: &mut [u8]| {
        bytes.copy_from_slice(b"early");
        Ok(())
    };
    assert_eq!(peer.send(5, &mut source), Ok(5));
    while !peer.is_sent() {
        peer.process();
    }

    // The reply has arrived, still in the channel.
    assert!(!stream.process());
    let answer = channel.wait(limit).unwrap();
    assert_eq!(answer.kind(), EventKind::Established);
    stream.set_peer(ConnData::parse(answer.private_data()).unwrap());
    stream.open();
    assert!(stream.process());
    assert_eq!(stream.readable(), 5);
}
