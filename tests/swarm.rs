//! Random programs over random bad networks, thousands of them, each from a seed.
//!
//! A program has several connections, reliable or extended reliable (XRC), with both ends sending, writing and reading at
//! once, receive requests that come late, scattered buffers of odd lengths. What it must lead to is known without running it:
//! no two operations touch the same bytes (but for READs of what the same queue pair wrote before). So whatever the network
//! does, memory and completions must come out as computed, or the queue pair must be in error with the status for "no answer".
//!
//! `ROCE_SWARM_SEEDS=n` runs more seeds; `ROCE_SWARM_SEED=n` runs one and writes a capture of it.

mod harness;

use std::{collections::BTreeMap, env, panic, time::Duration};

use harness::{Buffer, End, Options, Pair, Side};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use roce_provider::fabric::{Conditions, Identification, Network};
use roce_transport::{
    adapter::{TransmitBuffer, TransmitLimits},
    addr::Mtu,
    event::{Counter, DropReason},
    qp::{PostError, QpCaps},
    time::Instant,
    wire::Immediate,
    work::{Data, RecvWr, SendFlags, SendOp, SendWr, SrqId, Wc, WcOk, WcOpcode, WcStatus},
};

/// Draws of a program and of its network.
struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n.max(1)
    }

    /// From `least` to `most`, both included.
    fn range(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(most - least + 1)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}

/// Bytes of a node's memory, in pieces.
type Pieces = Vec<(usize, usize)>;

#[derive(Clone, Debug)]
enum Kind {
    Send,
    Write {
        to: usize,
    },
    Read {
        from: usize,
    },
    /// On the word that only this end of this connection uses.
    FetchAdd {
        word: usize,
        add: u64,
    },
    CompareSwap {
        word: usize,
        compare: u64,
        swap: u64,
    },
}

#[derive(Clone, Debug)]
struct Op {
    kind: Kind,
    local: Pieces,
    immediate: Option<[u8; 4]>,
    flags: SendFlags,
    inline: bool,
}

impl Op {
    fn length(&self) -> usize {
        self.local.iter().map(|(_, length)| length).sum()
    }
}

/// What one end of a connection does.
#[derive(Default, Debug)]
struct Half {
    ops: Vec<Op>,
    receives: Vec<Pieces>,
    /// Receive requests that are posted before the peer starts.
    early: usize,
    /// A word of the peer's memory, for atomics.
    word: usize,
}

/// A program: a list of connections, and how much memory each node needs.
struct Program {
    options: Options,
    /// Its connections are extended reliable ones, one each way, with an XRC SRQ at either end.
    xrc: bool,
    /// Otherwise every operation is as likely as any other.
    mostly_reads: bool,
    connections: Vec<[Half; 2]>,
    memory: [usize; 2],
}

impl Program {
    fn new(dice: &mut Dice) -> Self {
        let reads = dice.pick(&[1, 2, 3, 4, 16]);
        let options = Options {
            mtu: dice.pick(&Mtu::ALL),
            timeout: dice.pick(&[7, 8, 9]) as u8,
            // with few retries some programs fail, as they may
            retry_cnt: if dice.one_in(20) { dice.below(2) as u8 } else { 7 },
            rnr_retry: 7,
            min_rnr_timer: dice.range(1, 11) as u8,
            max_rd_atomic: reads,
            max_dest_rd_atomic: reads,
            sq_sig_all: dice.one_in(4),
            caps: QpCaps {
                max_send_wr: dice.range(1, 12),
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            a_psn: dice.pick(&[0, 0x10_0000, 0xFF_FFF0, 0x7F_FFFA]),
            b_psn: dice.below(1 << 24),
            ..Options::default()
        };
        let (xrc, mostly_reads) = (dice.one_in(4), dice.one_in(4));
        let mut program = Self { options, xrc, mostly_reads, connections: Vec::new(), memory: [0, 0] };
        for _ in 0..dice.range(1, 3) {
            let mut halves = [0, 1].map(|side: usize| {
                let word = program.memory[1 - side].next_multiple_of(8);
                program.memory[1 - side] = word + 8;
                Half { word, ..Half::default() }
            });
            for side in 0..2 {
                for _ in 0..dice.range(0, 8) {
                    program.add(&mut halves, side, dice);
                }
            }
            for half in &mut halves {
                half.early = dice.below(half.receives.len() as u32 + 1) as usize;
            }
            program.connections.push(halves);
        }
        program
    }

    /// One more operation of a side, and the receive request that it needs.
    fn add(&mut self, halves: &mut [Half; 2], side: usize, dice: &mut Dice) {
        if dice.one_in(6) {
            halves[side].ops.push(self.atomic(halves[side].word, side, dice));
            return;
        }
        let mtu = self.options.mtu.bytes();
        let length = match dice.below(6) {
            0 => dice.below(4),
            1 => dice.range(mtu - 1, mtu + 1),
            2 => dice.below(mtu),
            3 => dice.below(3) * mtu,
            _ => dice.below(6 * mtu),
        } as usize;
        let local = self.allocate(side, length, dice);
        let immediate = dice.one_in(3).then(|| dice.below(u32::MAX).to_be_bytes());
        let mut op = Op { kind: Kind::Send, local, immediate, flags: SendFlags::empty(), inline: false };
        match if self.mostly_reads { dice.below(12) } else { dice.below(3) } {
            0 => {}
            1 => op.kind = Kind::Write { to: self.allocate(1 - side, length, dice).first().map_or(0, |first| first.0) },
            _ => {
                op.immediate = None;
                op.kind = Kind::Read { from: self.read_source(&halves[side], side, length, dice) };
            }
        }
        let may_be_inline = !matches!(op.kind, Kind::Read { .. }) && length <= 64;
        op.inline = may_be_inline && dice.one_in(2);
        for (flag, chance) in [(SendFlags::SIGNALED, 2), (SendFlags::FENCE, 5), (SendFlags::SOLICITED, 5)] {
            op.flags.set(flag, dice.one_in(chance));
        }
        match op.kind {
            Kind::Send => {
                let room = length + dice.pick(&[0, 0, 1, 5000]);
                let pieces = self.allocate(1 - side, room, dice);
                halves[1 - side].receives.push(pieces);
            }
            Kind::Write { .. } if op.immediate.is_some() => halves[1 - side].receives.push(Pieces::new()),
            _ => {}
        }
        halves[side].ops.push(op);
    }

    fn atomic(&mut self, word: usize, side: usize, dice: &mut Dice) -> Op {
        // small numbers, so that a comparison is right now and then
        let (first, second) = (dice.below(3).into(), dice.below(3).into());
        let kind = if dice.one_in(2) {
            Kind::FetchAdd { word, add: first }
        } else {
            Kind::CompareSwap { word, compare: first, swap: second }
        };
        let flags = if dice.one_in(2) { SendFlags::SIGNALED } else { SendFlags::empty() };
        Op { kind, local: self.allocate(side, 8, dice), immediate: None, flags, inline: false }
    }

    /// Where a READ reads: memory of its own, or what an earlier WRITE of the same queue pair wrote.
    fn read_source(&mut self, half: &Half, side: usize, length: usize, dice: &mut Dice) -> usize {
        let written = half.ops.iter().rev().find_map(|op| match op.kind {
            Kind::Write { to } if op.length() >= length => Some(to),
            _ => None,
        });
        match written.filter(|_| dice.one_in(2)) {
            Some(to) => to,
            None => {
                let start = self.memory[1 - side];
                self.memory[1 - side] += length + dice.below(4) as usize;
                start
            }
        }
    }

    /// Memory that nothing else uses: for the far end of a WRITE in one piece, so the first piece holds all when there is no
    /// more than one.
    fn allocate(&mut self, side: usize, length: usize, dice: &mut Dice) -> Pieces {
        let mut pieces = Pieces::new();
        let mut left = length;
        while left > 0 || (pieces.is_empty() && dice.one_in(2)) {
            let size = if pieces.len() == 3 || dice.one_in(2) { left } else { dice.below(left as u32 + 1) as usize };
            pieces.push((self.memory[side], size));
            self.memory[side] += size;
            left -= size;
        }
        // one unbroken range first, gaps only between requests: a WRITE's far end uses it as one
        self.memory[side] += dice.below(4) as usize;
        pieces
    }
}

/// What a program must lead to.
struct Expected {
    memory: [Vec<u8>; 2],
    /// Per connection and side.
    sent: Vec<[Vec<(u64, WcOk)>; 2]>,
    received: Vec<[Vec<(u64, WcOk)>; 2]>,
}

impl Expected {
    fn of(program: &Program, start: &[Vec<u8>; 2]) -> Self {
        let mut memory = start.clone();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for halves in &program.connections {
            let mut here = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
            for side in 0..2 {
                let mut receives = halves[1 - side].receives.iter();
                for (id, op) in halves[side].ops.iter().enumerate() {
                    let length = op.length();
                    let bytes = gather(&memory[side], &op.local);
                    let mut ok = WcOk::new(WcOpcode::Send, 0);
                    let mut consumed = op.immediate.is_some().then_some(WcOpcode::RecvRdmaWithImm);
                    match op.kind {
                        Kind::Send => consumed = Some(WcOpcode::Recv),
                        Kind::Write { to } => {
                            ok.opcode = WcOpcode::RdmaWrite;
                            memory[1 - side][to..to + length].copy_from_slice(&bytes);
                        }
                        Kind::Read { from } => {
                            ok = WcOk { opcode: WcOpcode::RdmaRead, byte_len: length as u32, ..ok };
                            let read = memory[1 - side][from..from + length].to_vec();
                            scatter(&mut memory[side], &op.local, &read);
                        }
                        Kind::FetchAdd { word, .. } | Kind::CompareSwap { word, .. } => {
                            let found = memory[1 - side][word..word + 8].to_vec();
                            let old = u64::from_ne_bytes(found[..].try_into().unwrap());
                            let (opcode, new) = match op.kind {
                                Kind::CompareSwap { compare, swap, .. } => {
                                    (WcOpcode::CompSwap, if old == compare { swap } else { old })
                                }
                                Kind::FetchAdd { add, .. } => (WcOpcode::FetchAdd, old.wrapping_add(add)),
                                _ => unreachable!(),
                            };
                            ok = WcOk { opcode, byte_len: 8, ..ok };
                            memory[1 - side][word..word + 8].copy_from_slice(&new.to_ne_bytes());
                            scatter(&mut memory[side], &op.local, &found);
                        }
                    }
                    if let Some(opcode) = consumed {
                        let pieces = receives.next().unwrap();
                        if opcode == WcOpcode::Recv {
                            scatter(&mut memory[1 - side], pieces, &bytes);
                        }
                        let immediate = op.immediate.map(Immediate);
                        let got = WcOk { opcode, byte_len: length as u32, immediate, ..ok };
                        here.1[1 - side].push((here.1[1 - side].len() as u64, got));
                    }
                    if program.options.sq_sig_all || op.flags.contains(SendFlags::SIGNALED) {
                        here.0[side].push((id as u64, ok));
                    }
                }
            }
            sent.push(here.0);
            received.push(here.1);
        }
        Self { memory, sent, received }
    }
}

fn gather(memory: &[u8], pieces: &Pieces) -> Vec<u8> {
    pieces.iter().flat_map(|&(at, length)| memory[at..at + length].iter().copied()).collect()
}

fn scatter(memory: &mut [u8], pieces: &Pieces, mut bytes: &[u8]) {
    for &(at, length) in pieces {
        let (here, rest) = bytes.split_at(length.min(bytes.len()));
        memory[at..at + here.len()].copy_from_slice(here);
        bytes = rest;
    }
}

/// A network that is bad in several ways at once.
fn network(dice: &mut Dice, seed: u64) -> Network {
    let share = |dice: &mut Dice, most: u32| if dice.one_in(2) { 0.0 } else { f64::from(dice.below(most + 1)) / 1000.0 };
    let conditions = Conditions {
        loss: share(dice, 80),
        duplication: share(dice, 200),
        reordering: share(dice, 50),
        corruption: share(dice, 30),
        ecn: share(dice, 100),
        delay: Duration::from_micros(dice.range(1, 20).into()),
        jitter: Duration::from_micros(dice.pick(&[0, 0, 1, 30])),
        reorder_by: Duration::from_micros(50),
    };
    let mut network = Network::new(conditions, seed);
    // without the identification the ICRC over IPv4 is too weak for an exact oracle
    if conditions.corruption == 0.0 {
        network.set_identification(dice.pick(&[Identification::Known, Identification::Guessed, Identification::Hidden]));
    }
    network
}

/// What a network may do to packets, as the adapters see it.
const ALLOWED: &[DropReason] = &[
    DropReason::OutOfSequence,
    DropReason::StaleResponse,
    DropReason::RecoveryUnderWay,
    DropReason::ReadResponseGap,
    DropReason::ReplayMissing,
    DropReason::ResponderBusy,
];

/// What corruption adds, before the ICRC is looked at.
const CORRUPTED: &[DropReason] = &[
    DropReason::Icrc,
    DropReason::TooShort,
    DropReason::Padding,
    DropReason::UnknownOpcode,
    DropReason::TransportVersion,
    DropReason::UnknownQp,
    DropReason::WrongService,
    DropReason::WrongRole,
    DropReason::QpState,
    DropReason::PKey,
];

/// A program under way.
struct Run {
    pair: Pair,
    buffers: [Buffer; 2],
    ends: Vec<[End; 2]>,
    /// Per connection and side: where receive requests are posted, if not to the queue pair.
    srqs: Vec<[Option<SrqId>; 2]>,
    /// Per connection and side: operations and receive requests posted.
    posted: Vec<[(usize, usize); 2]>,
    sent: Vec<[Vec<Wc>; 2]>,
    received: Vec<[Vec<Wc>; 2]>,
}

fn connect(pair: &mut Pair, options: Options) -> ([End; 2], [Option<SrqId>; 2]) {
    (pair.connect(options).into(), [None; 2])
}

/// Two initiators and two targets. An end is its initiator, and the completion queue of its XRC SRQ.
fn connect_xrc(pair: &mut Pair, options: Options) -> ([End; 2], [Option<SrqId>; 2]) {
    let ends = [Side::A, Side::B].map(|side| {
        let (initiator, _target) = pair.connect_xrc(side, options);
        let (srq, recv_cq) = pair.node(side).xrc_srq();
        (End { recv_cq, ..initiator }, Some(srq))
    });
    let [(a, a_srq), (b, b_srq)] = ends;
    ([a, b], [a_srq, b_srq])
}

impl Run {
    fn new(program: &Program, network: Network, ipv6: bool, start: &[Vec<u8>; 2]) -> Self {
        let corrupts = network.faults().conditions().corruption > 0.0;
        let mut pair = Pair::build(network, ipv6);
        pair.trace.off = true;
        pair.allow_all(ALLOWED);
        if corrupts {
            pair.allow_all(CORRUPTED);
        }
        if program.options.retry_cnt < 7 {
            // one end may have given up while the other goes on
            pair.allow(DropReason::QpState);
        }
        let buffers = [pair.a.buffer(program.memory[0]), pair.b.buffer(program.memory[1])];
        for (buffer, bytes) in buffers.iter().zip(start) {
            buffer.put(0, bytes);
        }
        let (mut ends, mut srqs) = (Vec::new(), Vec::new());
        for _ in &program.connections {
            let (connected, queues) =
                if program.xrc { connect_xrc(&mut pair, program.options) } else { connect(&mut pair, program.options) };
            ends.push(connected);
            srqs.push(queues);
        }
        let none = || vec![Default::default(); ends.len()];
        Self {
            pair,
            buffers,
            posted: none(),
            sent: vec![Default::default(); ends.len()],
            received: vec![Default::default(); ends.len()],
            ends,
            srqs,
        }
    }

    fn work_request(&self, id: usize, op: &Op, side: usize, remote_srq: Option<SrqId>) -> SendWr {
        let (near, far) = (&self.buffers[side], &self.buffers[1 - side]);
        let immediate = op.immediate.map(Immediate);
        let wr_op = match op.kind {
            Kind::Send => SendOp::Send { immediate },
            Kind::Write { to } => SendOp::Write { remote: far.remote(to), immediate },
            Kind::Read { from } => SendOp::Read { remote: far.remote(from) },
            Kind::FetchAdd { word, add } => SendOp::FetchAdd { remote: far.remote(word), add },
            Kind::CompareSwap { word, compare, swap } => SendOp::CompareSwap { remote: far.remote(word), compare, swap },
        };
        let data = if op.inline {
            let bytes: Vec<u8> = op.local.iter().flat_map(|&(at, length)| near.part(at, length)).collect();
            Data::inline(&bytes)
        } else {
            Data::Sges(op.local.iter().map(|&(at, length)| near.sge(at, length)).collect())
        };
        SendWr { id: id as u64, op: wr_op, data, flags: op.flags, remote_srq }
    }

    /// Posts what fits; returns whether everything has been posted.
    fn post(&mut self, program: &Program, dice: &mut Dice) -> bool {
        let mut all = true;
        for (c, halves) in program.connections.iter().enumerate() {
            for (side, half) in halves.iter().enumerate() {
                let end = self.ends[c][side].clone();
                let (mut ops, mut receives) = self.posted[c][side];
                let more = if receives < half.early { half.early } else { receives + dice.below(3) as usize };
                while receives < more.min(half.receives.len()) {
                    let pieces = &half.receives[receives];
                    let sges = pieces.iter().map(|&(at, length)| self.buffers[side].sge(at, length));
                    let wr = RecvWr::new(receives as u64, sges);
                    match self.srqs[c][side] {
                        Some(srq) => self.pair.node(end.side).adapter.post_srq_recv(srq, &wr).unwrap(),
                        None => self.pair.post_recv(&end, &wr),
                    }
                    receives += 1;
                }
                while let Some(op) = half.ops.get(ops) {
                    let wr = self.work_request(ops, op, side, self.srqs[c][1 - side]);
                    match self.pair.try_post_send(&end, &wr) {
                        Ok(()) => ops += 1,
                        Err(PostError::QueueFull) => break,
                        Err(error) => panic!("posting {wr:?}: {error}"),
                    }
                }
                all &= ops == half.ops.len() && receives == half.receives.len();
                self.posted[c][side] = (ops, receives);
            }
        }
        all
    }

    fn collect(&mut self) {
        for (c, ends) in self.ends.iter().enumerate() {
            for (side, end) in ends.iter().enumerate() {
                self.sent[c][side].extend(end.sent());
                self.received[c][side].extend(end.received());
            }
        }
    }

    fn finish(&mut self, program: &Program, dice: &mut Dice) {
        while !self.post(program, dice) {
            let time = Duration::from_micros(dice.range(1, 400).into());
            self.pair.run_for(time);
            self.collect();
            assert!(self.pair.now < Instant::from_nanos(600_000_000_000), "not everything could be posted in ten minutes");
        }
        self.pair.run();
        self.collect();
    }

    /// Whether everything came out as it must; `false` when a connection failed as it may.
    fn check(&self, expected: &Expected) -> bool {
        let mut clean = true;
        for c in 0..self.ends.len() {
            let failed = (0..2).any(|side| self.sent[c][side].iter().any(|wc| wc.result.is_err()));
            clean &= !failed;
            for side in 0..2 {
                let what = format!("connection {c}, side {:?}", self.ends[c][side].side);
                compare(&format!("{what}, sent"), &self.sent[c][side], &expected.sent[c][side], failed, true);
                compare(&format!("{what}, received"), &self.received[c][side], &expected.received[c][side], failed, false);
            }
        }
        for side in 0..2 {
            let (is, must) = (self.buffers[side].bytes(), &expected.memory[side]);
            if clean && is != *must {
                let at = (0..is.len()).find(|&at| is[at] != must[at]);
                panic!("memory of side {} differs first at {at:?}", ["A", "B"][side]);
            }
        }
        clean
    }
}

/// Completions must be those expected. After a failure they are a part of them, then "no answer", then flushes.
fn compare(what: &str, is: &[Wc], must: &[(u64, WcOk)], failed: bool, is_send: bool) {
    let good: Vec<_> = is.iter().map_while(|wc| wc.result.ok().map(|ok| (wc.wr_id, ok))).collect();
    if !failed {
        assert_eq!(good, must, "{what}");
        assert_eq!(good.len(), is.len(), "{what}: {is:?}");
        return;
    }
    assert_eq!(good, must[..good.len().min(must.len())], "{what}");
    let mut bad = is[good.len()..].iter().map(|wc| wc.result.map_err(|error| error.status));
    if is_send && let Some(first) = bad.next() {
        assert!(matches!(first, Err(WcStatus::RetryExcErr | WcStatus::WrFlushErr)), "{what}: {is:?}");
    }
    assert!(bad.all(|result| result == Err(WcStatus::WrFlushErr)), "{what}: {is:?}");
}

/// What happened in all runs, so that the test can tell that it tested something.
type Totals = BTreeMap<&'static str, u64>;

fn run_seed(seed: u64, totals: &mut Totals, capture: bool) -> bool {
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
    let program = Program::new(&mut dice);
    let network = network(&mut dice, seed);
    let ipv6 = dice.one_in(4);
    let start = [0, 1].map(|side| {
        let mut bytes = vec![0; program.memory[side]];
        dice.0.fill_bytes(&mut bytes);
        for halves in &program.connections {
            let word = halves[1 - side].word;
            bytes[word..word + 8].copy_from_slice(&1u64.to_ne_bytes());
        }
        bytes
    });
    let expected = Expected::of(&program, &start);
    let mut run = Run::new(&program, network, ipv6, &start);
    run.pair.trace.off = !capture;
    // links that are slow to look and slow to send make batches, and keep answers waiting
    run.pair.batch = Duration::from_micros(dice.pick(&[0, 0, 5, 20, 100]));
    if dice.one_in(3) {
        let size = dice.pick(&[1, 20_000]);
        for node in [&mut run.pair.a, &mut run.pair.b] {
            node.transmit = TransmitBuffer::new(size, TransmitLimits { segments: 4, bytes: 20_000 });
        }
        run.pair.buffers = 1;
    }
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        run.finish(&program, &mut dice);
        run.check(&expected)
    }));
    for node in [&run.pair.a, &run.pair.b] {
        for Counter { name, value: count, .. } in node.adapter.counters().iter() {
            *totals.entry(name).or_default() += count;
        }
    }
    if capture {
        let path = env::temp_dir().join(format!("roce-swarm-{seed}.pcapng"));
        run.pair.write_pcapng(&path);
        println!("{}", run.pair.trace.ladder());
        println!("seed {seed}: capture in {}", path.display());
    }
    match result {
        Ok(clean) => clean,
        Err(cause) => {
            eprintln!("seed {seed} failed: see above; replay with ROCE_SWARM_SEED={seed}");
            panic::resume_unwind(cause);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

#[test]
fn whatever_the_network_does_memory_and_completions_come_out_right() {
    let mut totals = Totals::new();
    if let Some(seed) = number("ROCE_SWARM_SEED") {
        run_seed(seed, &mut totals, true);
        return;
    }
    let seeds = number("ROCE_SWARM_SEEDS").unwrap_or(2000);
    let clean = (0..seeds).filter(|&seed| run_seed(seed, &mut totals, false)).count() as u64;
    println!("{clean} of {seeds} seeds without an error; {totals:#?}");
    assert!(clean * 100 >= seeds * 95, "only {clean} of {seeds} seeds ended without an error");
    assert!(clean < seeds, "no seed was bad enough for an error");
    for counter in [
        "retransmitted_packets",
        "timeouts",
        "sequence_naks_received",
        "implied_naks",
        "rnr_naks_received",
        "duplicate_requests",
        "icrc_solved",
        "ecn_marked",
        "bad_icrc",
    ] {
        assert!(totals[counter] > seeds / 20, "{counter}: {}", totals[counter]);
    }
}

#[test]
fn a_seed_gives_the_same_packets_again() {
    for seed in 0..20 {
        let packets = || {
            let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
            let program = Program::new(&mut dice);
            let network = network(&mut dice, seed);
            let start = program.memory.map(|length| vec![0; length]);
            let mut run = Run::new(&program, network, false, &start);
            run.pair.trace.off = false;
            run.finish(&program, &mut dice);
            let records = std::mem::take(&mut run.pair.trace.records);
            records.into_iter().map(|record| (record.time, record.from, record.net, record.bytes)).collect::<Vec<_>>()
        };
        assert!(packets() == packets(), "seed {seed}");
    }
}
