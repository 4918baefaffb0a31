use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use roce_fabric::Network;
use roce_transport::{
    adapter::AdapterConfig,
    mem::{MrAttr, RKey, Region, Reregister, WindowBind},
    qp::{PostError, State},
    time::Instant,
    wire::Immediate,
    work::{Data, RecvWr, Remote, SendOp, SendWr, Sge, SrqId, Wc},
};

use super::{
    dice::Dice,
    model::{Expected, id},
    network::{self, ALONE, CORRUPTED, UNRELIABLE},
    program::{Cut, How, Key, Kind, Op, Program, Step, Target},
    shared::{FIRST_ID, Pool},
    unreliable::Chatting,
    view::View,
};
use crate::common::{AFTER_LOSS, ALL_RIGHTS, Buffer, End, Node, Options, Pair, Side, UDP_SEGMENT};

const SPARE: u64 = 0x5_0000_0000;

/// Never assigned.
pub const NO_KEY: RKey = RKey(5);

#[derive(Clone, Copy)]
pub struct Manner {
    /// Slow.
    pub audited: bool,
    pub header_prediction: bool,
}

pub struct Run<'a> {
    pub program: &'a Program,
    pub expected: &'a Expected,
    pub start: &'a [Vec<u8>; 2],
    pub pair: Pair,
    pub buffers: [Buffer; 2],
    pub links: Vec<Link>,
    pub talks: Vec<Talking>,
    pub pools: [Option<Pool>; 2],
    pub chats: Vec<Chatting<'a>>,
    /// `perfect`: also once and in order.
    pub lossless: bool,
    pub perfect: bool,
}

/// For XRC, the initiators.
pub struct Link {
    /// For XRC, with the SRQ's completion queue.
    pub ends: [End; 2],
    pub xrc: Option<[(SrqId, End); 2]>,
    options: [Options; 2],
    /// First PSNs of current lives.
    psns: [u32; 2],
    talk: [usize; 2],
    pub destroyed: [bool; 2],
}

fn connect_xrc(pair: &mut Pair, options: Options) -> ([End; 2], [(SrqId, End); 2]) {
    let connected = [Side::A, Side::B].map(|side| pair.connect_xrc(side, options));
    let [(a, b_target), (b, a_target)] = connected;
    let srqs = [Side::A, Side::B].map(|side| pair.node(side).xrc_srq());
    let [(a_srq, a_cq), (b_srq, b_cq)] = srqs;
    (
        [End { recv_cq: a_cq, ..a }, End { recv_cq: b_cq, ..b }],
        [(a_srq, a_target), (b_srq, b_target)],
    )
}

#[derive(Default)]
pub struct Talking {
    /// Opened; closed by reset or destruction.
    open: [bool; 2],
    pub closed: [bool; 2],
    pub posted: [usize; 2],
    pub receives: [usize; 2],
    pub sent: [Vec<Wc>; 2],
    pub received: [Vec<Wc>; 2],
    done: BTreeSet<(usize, usize)>,
    /// First keys.
    pub windows: Vec<RKey>,
    pub spares: Vec<Arc<Region>>,
    /// Memory at the end of life.
    pub frozen: [Option<Vec<u8>>; 2],
    cut: Option<Instant>,
}

impl<'a> Run<'a> {
    pub fn new(
        program: &'a Program,
        expected: &'a Expected,
        network: Network,
        ipv6: bool,
        start: &'a [Vec<u8>; 2],
        dice: &mut Dice,
        Manner { audited, header_prediction }: Manner,
    ) -> Self {
        let corrupts = network.faults().conditions().corruption > 0.0;
        let (lossless, perfect) = (network::loses_nothing(&network), network::is_perfect(&network));
        let mut pair = Pair::build(network, ipv6);
        let budget = dice.pick(&[u64::MAX, u64::MAX, 0, 16 << 10]);
        let config =
            |seed| AdapterConfig { read_budget: budget, header_prediction, ..Node::config(seed) };
        let node = if audited { Node::with_record } else { Node::with_config };
        if audited {
            pair = pair.audited();
        }
        pair.a = node(config(0xA), pair.a.ip, UDP_SEGMENT);
        pair.b = node(config(0xB), pair.b.ip, UDP_SEGMENT);
        pair.trace.off = true;
        pair.allow_all(AFTER_LOSS);
        if corrupts {
            pair.allow_all(CORRUPTED);
        }
        if program.options.retry_cnt < 7 || program.talks.iter().any(|talk| talk.is_doomed()) {
            // one end may be gone while the other continues
            pair.allow_all(ALONE);
        }
        if !program.chats.is_empty() {
            pair.allow_all(UNRELIABLE);
        }
        let buffers = [pair.a.buffer(program.memory[0]), pair.b.buffer(program.memory[1])];
        for (buffer, bytes) in buffers.iter().zip(start) {
            buffer.put(0, bytes);
        }
        let pools = [0, 1].map(|side: usize| {
            let messages: usize =
                expected.talks.iter().map(|talk| talk.received[side].len() + 2).sum();
            let node = if side == 0 { &mut pair.a } else { &mut pair.b };
            program.shared[side].then(|| Pool::new(node, messages, program.longest(), dice))
        });
        let options = [0, 1].map(|side: usize| Options {
            srq: pools[side].as_ref().map(|pool| pool.id),
            ..program.options
        });
        let link = |pair: &mut Pair, talk| {
            let (ends, xrc) = if program.xrc {
                let (ends, xrc) = connect_xrc(pair, options[0]);
                (ends, Some(xrc))
            } else {
                (pair.connect_with(options[0], options[1]).into(), None)
            };
            let psns = [options[0].a_psn, options[0].b_psn];
            Link { ends, xrc, options, psns, talk: [talk; 2], destroyed: [false; 2] }
        };
        let first = |link| program.talks.iter().position(|talk| talk.link == link).unwrap();
        let links = (0..program.links).map(|number| link(&mut pair, first(number))).collect();
        let chats = program
            .chats
            .iter()
            .map(|chat| Chatting::new(chat, &mut pair, program.options, dice))
            .collect();
        let talks = program.talks.iter().map(|_| Talking::default()).collect();
        let mut run = Self {
            program,
            expected,
            start,
            pair,
            buffers,
            links,
            talks,
            pools,
            chats,
            lossless,
            perfect,
        };
        for link in 0..program.links {
            for side in 0..2 {
                run.open(first(link), side);
            }
        }
        run
    }

    pub fn finish(&mut self, dice: &mut Dice) {
        loop {
            let more = self.step(dice);
            let mut time = Duration::from_micros(dice.range(1, 400).into());
            if let Some(cut) = self.talks.iter().filter_map(|talk| talk.cut).min() {
                time = time.min(cut.since(self.pair.now));
            }
            self.pair.run_for(time);
            self.collect();
            // others wait for a shared receive queue
            if !more && (self.pools.iter().all(Option::is_none) || self.is_at_rest()) {
                break;
            }
            assert!(
                self.pair.now < Instant::from_nanos(600_000_000_000),
                "not everything could be posted in ten minutes"
            );
        }
        self.pair.run();
        self.collect();
    }

    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (number, (spec, talk)) in self.program.talks.iter().zip(&self.talks).enumerate() {
            let _ = writeln!(
                text,
                "talk {number} on link {}, memory {:?}, cut {:?}",
                spec.link, spec.memory, spec.cut
            );
            for side in 0..2 {
                let half = &spec.halves[side];
                let (posted, receives, closed) =
                    (talk.posted[side], talk.receives[side], talk.closed[side]);
                let _ = writeln!(
                    text,
                    "  side {side}: posted {posted} and {receives}; closed: {closed}; word {}",
                    half.word
                );
                for op in &half.ops {
                    let _ = writeln!(text, "    {op:?}");
                }
                for wc in talk.sent[side].iter().chain(&talk.received[side]) {
                    let _ = writeln!(text, "    {} {:?}", wc.wr_id, wc.result);
                }
            }
        }
        text
    }

    fn is_at_rest(&mut self) -> bool {
        let Pair { a, b, network, .. } = &mut self.pair;
        network.poll_timeout().is_none()
            && a.adapter.poll_timeout().is_none()
            && b.adapter.poll_timeout().is_none()
    }

    /// True if more follows.
    fn step(&mut self, dice: &mut Dice) -> bool {
        for side in 0..2 {
            if let Some(pool) = &mut self.pools[side] {
                pool.tend(if side == 0 { &mut self.pair.a } else { &mut self.pair.b }, dice);
            }
        }
        let mut more = false;
        for talk in 0..self.talks.len() {
            if self.talks[talk].cut.is_some_and(|at| at <= self.pair.now) {
                self.cut(talk, dice);
            }
            for side in 0..2 {
                more |= !self.post(talk, side, dice);
            }
            more |= self.talks[talk].cut.is_some();
        }
        for chat in &mut self.chats {
            more |= !chat.say(&mut self.pair, dice);
        }
        more
    }

    fn open(&mut self, talk: usize, side: usize) {
        let (program, now) = (self.program, self.pair.now);
        let spec = &program.talks[talk];
        if self.talks[talk].open[1 - side] {
            self.talks[talk].cut = spec.cut.map(|cut| now.plus(cut.after));
        }
        self.talks[talk].open[side] = true;
        if self.talks[talk].open[1 - side] {
            return;
        }
        for window in &spec.windows {
            let node = if window.owner == 0 { &mut self.pair.a } else { &mut self.pair.b };
            let rkey = node.adapter.alloc_window(node.pd, window.window_type).unwrap();
            self.talks[talk].windows.push(rkey);
        }
        for spare in &spec.spares {
            let memory = self.view(spare.owner, spare.start, spare.length);
            let node = if spare.owner == 0 { &mut self.pair.a } else { &mut self.pair.b };
            let attr = MrAttr { memory, address: SPARE, access: ALL_RIGHTS };
            self.talks[talk].spares.push(node.adapter.register(node.pd, attr).unwrap());
        }
    }

    fn view(&self, side: usize, start: usize, length: usize) -> Arc<View> {
        let memory = self.buffers[side].region.memory().clone();
        Arc::new(View { memory, start: start as u64, length: length as u64 })
    }

    fn cut(&mut self, talk: usize, dice: &mut Dice) {
        let Some(Cut { how, side: first, .. }) = self.program.talks[talk].cut else { return };
        self.collect();
        let link = self.program.talks[talk].link;
        let side = if self.talks[talk].closed[first] { 1 - first } else { first };
        let (end, now) = (self.links[link].ends[side].clone(), self.pair.now);
        let adapter = &mut self.pair.node(end.side).adapter;
        self.talks[talk].cut = None;
        self.talks[talk].closed[side] = how != How::Error;
        match how {
            How::Error => adapter.to_error(now, end.qpn).unwrap(),
            How::Destroy => adapter.destroy_qp(end.qpn).unwrap(),
            How::Reset { .. } => adapter.to_reset(end.qpn).unwrap(),
        }
        self.collect();
        self.freeze(talk, side);
        if how == How::Error {
            return;
        }
        if let Some(pool) = &mut self.pools[side] {
            pool.lost += 1;
        }
        match how {
            How::Reset { gap } => {
                if side == first {
                    self.talks[talk].cut = Some(now.plus(gap));
                    let psns = self.links[link].psns;
                    // packets in flight miss the PSN window
                    let far = |psn: u32, dice: &mut Dice| {
                        (psn + dice.range(0x10_0000, 0xEF_0000)) & 0xFF_FFFF
                    };
                    self.links[link].psns = psns.map(|psn| far(psn, dice));
                }
                self.connect(link, side);
                self.links[link].talk[side] = talk + 1;
                self.open(talk + 1, side);
            }
            _ => self.links[link].destroyed[side] = true,
        }
    }

    fn connect(&mut self, link: usize, side: usize) {
        let Link { ends, options, psns, .. } = &self.links[link];
        let (options, psns) = (options[side], *psns);
        let (end, peer) = (ends[side].clone(), ends[1 - side].clone());
        let ip = self.pair.node(peer.side).ip;
        self.pair.node(end.side).connect(
            end.qpn,
            ip,
            peer.qpn,
            psns[1 - side],
            psns[side],
            &options,
        );
    }

    fn freeze(&mut self, talk: usize, side: usize) {
        let range = self.program.talks[talk].memory[side].clone();
        self.talks[talk].frozen[side] = Some(self.buffers[side].part(range.start, range.len()));
    }

    pub fn is_dead(&self, link: usize, side: usize) -> bool {
        let link = &self.links[link];
        link.destroyed[side] || self.pair.state(&link.ends[side]) == State::Err
    }

    /// True at the end.
    fn post(&mut self, talk: usize, side: usize, dice: &mut Dice) -> bool {
        let spec = &self.program.talks[talk];
        let half = &spec.halves[side];
        let Talking { open, closed, .. } = self.talks[talk];
        if !open[side] || closed[side] {
            return closed[side];
        }
        let end = self.links[spec.link].ends[side].clone();
        let mut receives = self.talks[talk].receives[side];
        let more =
            if receives < half.early { half.early } else { receives + dice.below(3) as usize };
        while receives < more.min(half.receives.len()) && !self.is_dead(spec.link, side) {
            let sges = half.receives[receives]
                .iter()
                .map(|&(at, length)| self.buffers[side].sge(at, length));
            let wr = RecvWr::new(id(talk, receives), sges);
            match &self.links[spec.link].xrc {
                Some(xrc) => {
                    self.pair.node(end.side).adapter.post_srq_recv(xrc[side].0, &wr).unwrap();
                }
                None => self.pair.post_recv(&end, &wr),
            }
            receives += 1;
        }
        self.talks[talk].receives[side] = receives;
        let dead = self.is_dead(spec.link, side);
        let is_served = dead || receives == half.receives.len();
        // waiting for an impossible step ends a side
        let over =
            dead || (self.is_dead(spec.link, 1 - side) || closed[1 - side]) && spec.cut.is_none();
        while let Some(op) = half.ops.get(self.talks[talk].posted[side]) {
            if self.is_dead(spec.link, side) {
                return true;
            }
            if let Some(step) = op
                .after
                .iter()
                .find(|step| !self.talks[step.talk].done.contains(&(step.side, step.op)))
            {
                return is_served && (over || self.is_hopeless(*step));
            }
            let index = self.talks[talk].posted[side];
            if let Kind::Reregister { spare, to, access } = op.kind {
                self.reregister(talk, side, spare, to, access);
                self.talks[talk].done.insert((side, index));
            } else {
                let wr = self.work_request(talk, index, op, side);
                match self.pair.try_post_send(&end, &wr) {
                    Ok(()) => {}
                    Err(PostError::QueueFull) => return false,
                    Err(error) => panic!("posting {wr:?}: {error}"),
                }
            }
            self.talks[talk].posted[side] += 1;
        }
        is_served
    }

    fn is_hopeless(&self, step: Step) -> bool {
        let link = self.program.talks[step.talk].link;
        self.talks[step.talk].closed[step.side] || (0..2).any(|side| self.is_dead(link, side))
    }

    fn reregister(
        &mut self,
        talk: usize,
        side: usize,
        spare: usize,
        to: usize,
        access: roce_transport::mem::Access,
    ) {
        let memory = self.view(side, to, self.program.talks[talk].spares[spare].length);
        let change = Reregister { memory: Some((memory, SPARE)), access: Some(access), pd: None };
        let node = if side == 0 { &mut self.pair.a } else { &mut self.pair.b };
        let old = &self.talks[talk].spares[spare];
        let new = node.adapter.reregister(old, change).unwrap();
        assert_eq!((new.lkey(), new.rkey()), (old.lkey(), old.rkey()));
        self.talks[talk].spares[spare] = new;
    }

    fn work_request(&self, talk: usize, index: usize, op: &Op, side: usize) -> SendWr {
        let near = &self.buffers[side];
        let immediate = op.immediate.map(Immediate);
        let remote = |target| self.remote(talk, side, target);
        let wr_op = match op.kind {
            Kind::Send { invalidate: None } => SendOp::Send { immediate },
            Kind::Send { invalidate: Some(key) } => {
                SendOp::SendInvalidate { rkey: self.rkey(talk, side, key) }
            }
            Kind::Write(target) => SendOp::Write { remote: remote(target), immediate },
            Kind::Read(target) => SendOp::Read { remote: remote(target) },
            Kind::FetchAdd(word, add) => SendOp::FetchAdd { remote: remote(word), add },
            Kind::CompareSwap { word, compare, swap } => {
                SendOp::CompareSwap { remote: remote(word), compare, swap }
            }
            Kind::AtomicWrite(target) => SendOp::AtomicWrite { remote: remote(target) },
            Kind::Flush { target, length, placement, whole } => {
                SendOp::Flush { remote: remote(target), length: length as u32, placement, whole }
            }
            Kind::Bind { window, generation, start, length, access, zero_based } => {
                SendOp::BindWindow(WindowBind {
                    rkey: self.window_key(talk, window, generation),
                    region: near.region.lkey(),
                    address: near.region.address() + start as u64,
                    length: length as u64,
                    access,
                    zero_based,
                })
            }
            Kind::LocalInvalidate(key) => {
                SendOp::LocalInvalidate { rkey: self.rkey(talk, 1 - side, key) }
            }
            Kind::Reregister { .. } => unreachable!("no request"),
        };
        let sge = |&(at, length): &(usize, usize)| {
            let sge = near.sge(at, length);
            if op.bad_list { Sge { lkey: roce_transport::mem::LKey(NO_KEY.0), ..sge } } else { sge }
        };
        let data = if op.inline {
            let bytes: Vec<u8> =
                op.local.iter().flat_map(|&(at, length)| near.part(at, length)).collect();
            Data::inline(&bytes)
        } else {
            Data::Sges(op.local.iter().map(sge).collect())
        };
        let link = &self.links[self.program.talks[talk].link];
        let remote_srq = link.xrc.as_ref().map(|xrc| xrc[1 - side].0).filter(|_| !wr_op.is_local());
        SendWr { wr_id: id(talk, index), op: wr_op, data, flags: op.flags, remote_srq }
    }

    fn window_key(&self, talk: usize, window: usize, generation: u32) -> RKey {
        (0..generation).fold(self.talks[talk].windows[window], |key, _| key.next())
    }

    pub fn rkey(&self, talk: usize, side: usize, key: Key) -> RKey {
        match key {
            Key::Region => self.buffers[1 - side].region.rkey(),
            Key::Window { talk, window, generation, .. } => {
                self.window_key(talk, window, generation)
            }
            Key::Spare { spare, .. } => self.talks[talk].spares[spare].rkey(),
            Key::Unknown => NO_KEY,
        }
    }

    fn remote(&self, talk: usize, side: usize, Target { at, key }: Target) -> Remote {
        let address = match key {
            Key::Region | Key::Unknown | Key::Window { base: None, .. } => {
                self.buffers[1 - side].remote(at).address
            }
            Key::Window { base: Some(base), .. } => (at - base) as u64,
            Key::Spare { base, .. } => SPARE + (at - base) as u64,
        };
        Remote { address, rkey: self.rkey(talk, side, key) }
    }

    fn collect(&mut self) {
        for link in &self.links {
            for (side, end) in link.ends.iter().enumerate() {
                let present = link.talk[side];
                for wc in end.sent() {
                    let (talk, index) = (wc.wr_id as usize / 1000, wc.wr_id as usize % 1000);
                    assert_eq!(talk, present, "a completion of a life that is over: {wc:?}");
                    assert!(
                        !self.talks[talk].closed[side],
                        "a completion of a life that is over: {wc:?}"
                    );
                    assert_eq!(wc.qpn, end.qpn);
                    if wc.result.is_ok() {
                        self.talks[talk].done.insert((side, index));
                    }
                    self.talks[talk].sent[side].push(wc);
                }
                for wc in end.received() {
                    let talk = &mut self.talks[present];
                    assert!(!talk.closed[side], "a completion of a life that is over: {wc:?}");
                    let is_shared = wc.wr_id >= FIRST_ID;
                    assert!(
                        is_shared || wc.wr_id as usize / 1000 == present,
                        "a completion of a life that is over: {wc:?}"
                    );
                    if is_shared && let Some(pool) = &mut self.pools[side] {
                        let message = self.expected.talks[present].received[side]
                            .get(talk.received[side].len());
                        pool.completed(wc.wr_id, message.filter(|_| wc.result.is_ok()));
                    }
                    talk.received[side].push(wc);
                }
            }
        }
        for chat in &mut self.chats {
            chat.collect();
        }
    }
}
