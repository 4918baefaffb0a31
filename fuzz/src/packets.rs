//! Target: packets, commands and time for an adapter with queue pairs in every state.
//!
//! The first byte configures the adapter; a step is a byte for its kind and operands. A control
//! byte selects mended fields, which random packets would fail: addresses, opcode, PSN, keys, ICRC.
//!
//! Invariants: bounded events per step, and sending ends. Counters match events. Every request
//! completes once, in order. Packets not proven to come from the peer change nothing. Memory
//! changes only where the peer may write.

mod forge;
mod oracle;
mod world;

use std::collections::VecDeque;

use roce_transport::{
    addr::{AddressVector, QKey, Qpn},
    event::Counters,
    mem::{Access, Region},
    qp::{PathMigration, QpType, QpUpdate, Rts, State},
    wire::{Datagram, ICRC_LEN, IcrcMatch, Ident, NetHeader, Packet, icrc, verify_icrc},
    work::{
        Data, NotifyKind, Placement, RecvWr, Remote, SendFlags, SendWr, Sge, UdDestination, Wc,
    },
};

use crate::input::Input;
use forge::forge;
use oracle::{Ledger, is_untrusted, snapshot};
use world::{Edge, FILL, Member, QKEY, Queues, REGION, RIGHTS, Setup, World};

/// More only cost time.
const STEPS_MAX: usize = 400;
/// Far more than all requests and responses take.
const BURST_MAX: usize = 10_000;
/// Packets to itself; more are lost.
const IN_FLIGHT_MAX: usize = 256;

/// With and without header prediction. The counters show coverage.
pub fn packets(data: &[u8]) -> Counters {
    let [predicted, general] = [true, false].map(|header_prediction| play(data, header_prediction));
    assert!(predicted == general, "header prediction changes something");
    predicted.counters
}

#[derive(PartialEq)]
struct Seen {
    sent: Vec<(NetHeader, Vec<u8>)>,
    completions: Vec<Wc>,
    counters: Counters,
}

fn play(data: &[u8], header_prediction: bool) -> Seen {
    let mut input = Input::new(data);
    let mut run = Run::new(Setup(input.byte()), header_prediction);
    input.play(STEPS_MAX, |input| {
        run.step(input);
        run.check();
    });
    run.finish()
}

struct Run {
    world: World,
    ledger: Ledger,
    in_flight: VecDeque<(NetHeader, Vec<u8>)>,
    sent: Vec<(NetHeader, Vec<u8>)>,
}

impl Run {
    fn new(setup: Setup, header_prediction: bool) -> Self {
        let mut world = World::new(setup, header_prediction);
        Ledger::take_events(&mut world);
        let ledger = Ledger::new(world.members.len());
        Self { ledger, world, in_flight: VecDeque::new(), sent: Vec::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() & 0x0F {
            0..=4 => {
                let (net, bytes) = forge(&self.world, input);
                self.receive(&net, &bytes);
            }
            5 | 6 => self.deliver(input),
            7 | 8 => self.transmit_all(),
            9 => {
                self.transmit_once();
            }
            10 | 11 => self.post_send(input),
            12 => self.post_receive(input),
            13 => self.pass_time(input),
            14 => self.modify(input),
            _ => self.disturb(input),
        }
    }

    fn check(&mut self) {
        Ledger::take_events(&mut self.world);
        self.ledger.take_completions(&self.world);
        self.ledger.check_counters(&self.world);
    }

    fn finish(mut self) -> Seen {
        self.transmit_all();
        self.check();
        for member in self.world.members.clone() {
            let _reset_stays = self.world.fail(member);
        }
        self.check();
        self.ledger.check_all_complete(&self.world);
        self.transmit_all();
        self.check();
        assert_eq!(
            self.world.adapter.poll_timeout(),
            None,
            "a queue pair in ERR waits for something"
        );
        self.world.check_memory();
        let counters = self.world.adapter.counters().clone();
        Seen { sent: self.sent, completions: self.ledger.completions, counters }
    }

    fn receive(&mut self, net: &NetHeader, bytes: &[u8]) {
        let before = snapshot(&self.world);
        let disposition = self
            .world
            .adapter
            .handle_datagram(self.world.now, &Datagram::new(net, bytes))
            .disposition;
        self.ledger.received(disposition);
        assert!(
            is_untrusted(disposition) || verify_icrc(net, bytes).is_some(),
            "a wrong ICRC was not noticed"
        );
        if is_untrusted(disposition) {
            assert_eq!(
                snapshot(&self.world),
                before,
                "a packet that was not checked changed a queue pair"
            );
            assert_eq!(self.world.adapter.poll_event(), None);
            assert!(self.world.send_cq.is_empty() && self.world.recv_cq.is_empty());
        }
    }

    /// A packet to itself, perhaps reordered, duplicated or damaged.
    fn deliver(&mut self, input: &mut Input<'_>) {
        let [which, how, place] = input.array();
        // mostly the oldest
        let index = if which < 0xC0 { 0 } else { usize::from(which & 0x3F) };
        let Some((net, mut bytes)) = self.in_flight.remove(index) else { return };
        match how & 0x0F {
            0..=8 => {}
            9 => return,
            10 | 11 => self.in_flight.push_back((net, bytes.clone())),
            damage => {
                let at = usize::from(place) % bytes.len();
                bytes[at] ^= 1 << (how >> 4 & 7);
                let body = bytes.len() - ICRC_LEN;
                if damage != 12 {
                    let right = icrc(&net, &bytes[..body]).to_le_bytes();
                    bytes[body..].copy_from_slice(&right);
                }
            }
        }
        self.receive(&net, &bytes);
    }

    fn transmit_all(&mut self) {
        let mut packets = 0;
        loop {
            let now = self.transmit_once();
            if now == 0 {
                return;
            }
            packets += now;
            assert!(packets <= BURST_MAX, "sending does not come to an end");
        }
    }

    fn transmit_once(&mut self) -> usize {
        let Self { world: World { adapter, buffer, now, setup, .. }, ledger, in_flight, sent } =
            self;
        buffer.clear();
        adapter.poll_transmit(*now, buffer);
        let [own, _] = setup.addresses();
        let mut count = 0;
        for (net, bytes) in buffer.datagrams() {
            count += 1;
            ledger.sent();
            sent.push((net, bytes.to_vec()));
            assert!(Packet::parse(bytes).is_ok(), "sent something that is no packet");
            assert_eq!(verify_icrc(&net, bytes), Some(IcrcMatch::Exact), "sent a wrong ICRC");
            assert!(matches!(net.ident, Ident::Known { dont_fragment: true, .. }));
            if (net.dst == own || net.dst == setup.group()) && in_flight.len() < IN_FLIGHT_MAX {
                in_flight.push_back((net, bytes.to_vec()));
            }
        }
        assert_eq!(buffer.runs().iter().map(|run| run.count()).sum::<usize>(), count);
        count
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let World { adapter, now, .. } = &mut self.world;
        *now = match adapter.poll_timeout() {
            Some(at) if how & 1 == 0 => at.max(*now),
            _ => now.plus(std::time::Duration::from_micros(u64::from(how) * 8)),
        };
        adapter.handle_timeout(*now);
        assert!(adapter.poll_timeout().is_none_or(|at| at > *now), "what was due is due again");
    }

    fn member(&self, input: &mut Input<'_>) -> (usize, Member) {
        let index = usize::from(input.byte()) % self.world.members.len();
        (index, self.world.members[index])
    }

    fn post_send(&mut self, input: &mut Input<'_>) {
        let (index, member) = self.member(input);
        let [kind, length, target, flags] = input.array();
        let region = remote(&self.world, target);
        let id = self.ledger.next_id();
        let data = self.data(kind, length, target);
        let at = |offset: u64| Remote { address: region.address() + offset, rkey: region.rkey() };
        let far = at(u64::from(length) * 4);
        let window = usize::from(target) % 3;
        let wr = match (kind & 3, kind >> 6) {
            (0, 2) => SendWr::bind_window(id, self.world.bind(window, length, kind & 4 != 0)),
            (1, 2) => SendWr::local_invalidate(id, self.world.windows[window]),
            (0, 3) if member.qp_type == QpType::Rc => {
                SendWr::send_invalidate(id, self.world.windows[window], data)
            }
            (1, 3) if member.qp_type == QpType::Rc => SendWr::atomic_write(id, far, self.word()),
            (2, 3) if member.qp_type == QpType::Rc => match kind & 4 {
                0 => SendWr::flush(id, far, length.into(), Placement::GLOBAL),
                _ => SendWr::flush_all(id, far.rkey, Placement::GLOBAL),
            },
            (3, 1 | 2) => self.atomic(id, kind, at(u64::from(length) * 4), data),
            (3, _) => SendWr::send_to(id, self.destination(target), data),
            _ if member.qp_type == QpType::Ud => {
                SendWr::send_to(id, self.destination(target), data)
            }
            (0, _) => SendWr::send(id, data),
            (1, _) => SendWr::write(id, at(u64::from(length)), data),
            _ => SendWr::read(id, at(u64::from(length)), data),
        };
        let wr = if kind & 4 == 0 { wr } else { wr.with_immediate([kind; 4]) };
        let wr = wr.with_flags(SendFlags::from_bits_truncate(u32::from(flags)));
        let wr = match (member.qp_type, flags) {
            (QpType::XrcInitiator, 0xF8..) => wr.to_srq(self.world.foreign_srq),
            (QpType::XrcInitiator, _) => wr.to_srq(self.world.xrc_srq),
            _ => wr,
        };
        let signaled = wr.flags.contains(SendFlags::SIGNALED);
        if self.world.adapter.post_send(self.world.now, member.qpn, &wr).is_ok() {
            self.ledger.posted_send(&self.world, index, id, signaled);
        }
    }

    /// Mostly with the required 8 bytes instead of `data`.
    fn atomic(&self, id: u64, kind: u8, remote: Remote, data: Data) -> SendWr {
        let data = if kind & 8 == 0 { self.word() } else { data };
        if kind >> 6 == 1 {
            // the value that fills every region, or the value that the swap stores
            SendWr::compare_swap(
                id,
                remote,
                if kind & 16 == 0 { u64::from_ne_bytes([FILL; 8]) } else { id - 1 },
                id,
                data,
            )
        } else {
            SendWr::fetch_add(id, remote, u64::MAX - id, data)
        }
    }

    fn word(&self) -> Data {
        let open = &self.world.open;
        Sge { lkey: open.lkey(), address: open.address(), length: 8 }.into()
    }

    /// Up to 1,275 bytes in one or two SGEs; inline if few. Some targets corrupt the list.
    fn data(&self, kind: u8, length: u8, target: u8) -> Data {
        let World { open, readable, foreign, .. } = &self.world;
        let length = u32::from(length) * 5;
        let region: &Region = match target >> 4 {
            0xF => foreign,
            0xE => readable,
            _ => open,
        };
        let address =
            region.address() + if target >> 4 == 0xD { REGION - 1 } else { u64::from(kind >> 3) };
        let sge = Sge { lkey: region.lkey(), address, length };
        match kind >> 4 & 3 {
            0 if length <= 80 => Data::inline(&[kind; 80][..length as usize]),
            1 => {
                let half = length / 2;
                let second =
                    Sge { address: address + u64::from(half), length: length - half, ..sge };
                Data::from([Sge { length: half, ..sge }, second])
            }
            2 if target == 0 => Data::from([sge; 3]),
            _ => sge.into(),
        }
    }

    fn destination(&self, target: u8) -> UdDestination {
        let [own, peer] = self.world.setup.addresses();
        let mut av = self.world.way_to(if target & 1 == 0 { own } else { peer });
        // GID index 2 has the other family
        av.sgid_index = if target & 0xE == 0xE { u16::from(target >> 4) } else { 0 };
        if target & 0x70 == 0x70 {
            let av = self.world.way_to(self.world.setup.group());
            return UdDestination::new(av, Qpn::MULTICAST, QKEY);
        }
        let qpn = self.world.members[usize::from(target >> 1) % self.world.members.len()].qpn;
        UdDestination::new(av, qpn, if target & 0x80 == 0 { QKEY } else { QKey(0x8000_0000) })
    }

    fn post_receive(&mut self, input: &mut Input<'_>) {
        let (index, member) = self.member(input);
        let [kind, length] = input.array();
        let id = self.ledger.next_id();
        let data = self.data(kind | 0x10, length, kind & 0xF0);
        let Data::Sges(sges) = data else { return };
        let wr = RecvWr::new(id, sges);
        let World { adapter, now, srq, xrc_srq, .. } = &mut self.world;
        let posted = match member.queues {
            Queues::Shared => adapter.post_srq_recv(*srq, &wr),
            Queues::Xrc => adapter.post_srq_recv(*xrc_srq, &wr),
            Queues::Own | Queues::Tiny => adapter.post_recv(*now, member.qpn, &wr),
        };
        if posted.is_ok() {
            self.ledger.posted_receive(&self.world, index, id);
        }
    }

    fn modify(&mut self, input: &mut Input<'_>) {
        let (index, member) = self.member(input);
        let world = &mut self.world;
        let before = world.adapter.query_qp(member.qpn);
        let how = input.byte();
        if how & 0x80 != 0 {
            let changes = changes(world, member, input.array());
            let now = world.now;
            let result = if how & 1 == 0 {
                world.adapter.update(now, member.qpn, &changes)
            } else {
                world.adapter.to_rts_with(now, member.qpn, &Rts::Resume, &changes)
            };
            if result.is_err() {
                assert_eq!(
                    world.adapter.query_qp(member.qpn),
                    before,
                    "refused changes changed something"
                );
            }
            return;
        }
        let edge: Edge = match how & 7 {
            0 => World::drain,
            1 => World::resume,
            2 => World::fail,
            3 => World::init,
            4 => World::rtr,
            5 => World::rts,
            how => {
                world.reset(member).expect("every state has a way to RESET");
                // earlier requests do not complete
                self.ledger.forget(index);
                // a queue pair whose completion queue overflowed is dead
                let dead = member.queues == Queues::Tiny && world.tiny_cq.has_overrun();
                if how == 7 && !dead {
                    world.raise(member, State::Rts);
                }
                return;
            }
        };
        if edge(world, member).is_err() {
            assert_eq!(
                world.adapter.query_qp(member.qpn),
                before,
                "a refused transition changed something"
            );
        }
    }

    fn disturb(&mut self, input: &mut Input<'_>) {
        let world = &mut self.world;
        let how = input.byte();
        match how & 7 {
            0 => world.renew_open(),
            1 => world.send_cq.req_notify(NotifyKind::Next),
            2 => world.recv_cq.req_notify(NotifyKind::Solicited),
            3 => world.tiny_cq.req_notify(NotifyKind::Next),
            4 => {
                let (limit, before) = (u32::from(how >> 3), world.adapter.query_srq(world.srq));
                if world.adapter.set_srq_limit(world.srq, limit).is_err() {
                    assert_eq!(world.adapter.query_srq(world.srq), before);
                }
            }
            5 => {
                let (size, before) = (u32::from(how >> 3), world.adapter.query_srq(world.srq));
                if world.adapter.resize_srq(world.srq, size).is_err() {
                    assert_eq!(world.adapter.query_srq(world.srq), before);
                }
            }
            _ => while world.tiny_cq.pop().is_some() {},
        }
    }
}

/// Up to three attributes, mostly valid; the adapter decides which an edge accepts.
fn changes(world: &World, member: Member, [which, value, other]: [u8; 3]) -> QpUpdate {
    let mut changes = QpUpdate::NONE;
    for which in [which & 0x0F, which >> 4, other & 0x0F] {
        match which {
            0 => changes.current_state = world.adapter.query_qp(member.qpn).map(|info| info.state),
            1 => changes.pkey_index = Some(u16::from(value == 0xFF)),
            2 => {
                changes.access = Some(if value & 1 == 0 {
                    RIGHTS
                } else {
                    RIGHTS.difference(Access::REMOTE_WRITE)
                });
            }
            3 => changes.qkey = Some(if value & 1 == 0 { QKEY } else { QKey(7) }),
            4 => changes.av = Some(AddressVector { hop_limit: value, ..world.way_to(member.peer) }),
            5 => changes.timeout = Some(value % 33),
            6 => changes.retry_cnt = Some(value % 9),
            7 => changes.rnr_retry = Some(value % 9),
            8 => changes.max_rd_atomic = Some(value % 5),
            9 => changes.max_dest_rd_atomic = Some(value % 5),
            10 => changes.min_rnr_timer = Some(value % 33),
            11 => changes.path_migration = Some(PathMigration::Migrated),
            _ => {}
        }
    }
    changes
}

fn remote(world: &World, target: u8) -> &Region {
    [&world.open, &world.open, &world.readable, &world.private][usize::from(target & 3)]
}
