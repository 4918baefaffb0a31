//! UC and UD beside reliable services. Messages arrive whole or not at all.

use std::ops::Range;

use roce_transport::{
    addr::Mtu,
    mem::{RKey, WindowBind, WindowId, WindowType},
    qp::PostError,
    wire::Immediate,
    work::{RecvWr, SendOp, SendWr, Wc, WcOk, WcOpcode},
};

use super::{dice::Dice, program::REMOTE};
use crate::common::{Buffer, End, Options, Pair};

const GRH: usize = 40;

/// UC, or a UD queue pair per side.
#[derive(Debug)]
pub struct Chat {
    datagrams: bool,
    lines: [Vec<Line>; 2],
    /// Invalidated before this line of the peer.
    window: [Option<usize>; 2],
}

#[derive(Clone, Debug)]
struct Line {
    write: bool,
    /// A WRITE targets the same offset.
    bytes: Range<usize>,
    immediate: Option<[u8; 4]>,
}

impl Line {
    fn consumes(&self) -> bool {
        !self.write || self.immediate.is_some()
    }
}

impl Chat {
    pub fn new(mtu: Mtu, dice: &mut Dice) -> Self {
        let datagrams = dice.one_in(2);
        let longest = if datagrams { mtu.bytes() } else { 3 * mtu.bytes() };
        let lines = [0, 1].map(|_| {
            let mut at = 0;
            let mut line = |dice: &mut Dice| {
                let length = if dice.one_in(4) { 0 } else { dice.below(longest + 1) as usize };
                let bytes = at..at + length;
                at += length;
                let immediate = dice.one_in(2).then(|| dice.below(u32::MAX).to_be_bytes());
                Line { write: !datagrams && dice.one_in(2), bytes, immediate }
            };
            (0..dice.below(8)).map(|_| line(dice)).collect::<Vec<_>>()
        });
        let window = [0, 1].map(|side: usize| {
            let some = !datagrams && dice.one_in(2);
            some.then(|| dice.below(lines[1 - side].len() as u32 + 4) as usize)
        });
        Self { datagrams, lines, window }
    }

    fn memory(&self, side: usize) -> usize {
        self.lines[side].last().map_or(0, |line| line.bytes.end)
    }

    fn longest(&self, side: usize) -> usize {
        GRH + self.lines[side].iter().map(|line| line.bytes.len()).max().unwrap_or(0)
    }
}

const BIND: u64 = 1000;
const INVALIDATE: u64 = 1001;

pub struct Chatting<'a> {
    chat: &'a Chat,
    pub ends: [End; 2],
    halves: [Half; 2],
}

struct Half {
    source: Buffer,
    /// Target of the peer's WRITEs.
    sink: Buffer,
    inbox: Buffer,
    said: usize,
    sent: Vec<Wc>,
    received: Vec<Wc>,
    window: Option<RKey>,
    bound: bool,
    /// Memory after invalidation.
    frozen: Option<Vec<u8>>,
}

impl<'a> Chatting<'a> {
    pub fn new(chat: &'a Chat, pair: &mut Pair, options: Options, dice: &mut Dice) -> Self {
        let options = Options { srq: None, ..options };
        let ends =
            if chat.datagrams { pair.datagrams(options) } else { pair.connect_unreliably(options) };
        let ends = <[End; 2]>::from(ends);
        let halves = [0, 1].map(|side: usize| {
            let node = pair.node(ends[side].side);
            let slot = chat.longest(1 - side);
            let slots = 2 * chat.lines[1 - side].len() + 2;
            let (source, sink) =
                (node.buffer(chat.memory(side)), node.buffer(chat.memory(1 - side)));
            let inbox = node.buffer(slots * slot);
            source.put(0, &dice.bytes(source.len()));
            for id in 0..slots {
                let wr = RecvWr::new(id as u64, [inbox.sge(id * slot, slot)]);
                pair.post_recv(&ends[side], &wr);
            }
            let mut window = None;
            if chat.window[side].is_some() && sink.len() > 0 {
                let node = pair.node(ends[side].side);
                let pd = node.pd;
                let rkey = node
                    .adapter
                    .alloc_window(pd, dice.pick(&[WindowType::Type2A, WindowType::Type2B]))
                    .unwrap()
                    .next();
                let (region, address, length) =
                    (sink.region.lkey(), sink.region.address(), sink.region.length());
                let bind =
                    WindowBind { rkey, region, address, length, access: REMOTE, zero_based: false };
                pair.post_send(&ends[side], &SendWr::bind_window(BIND, bind));
                window = Some(rkey);
            }
            let (said, sent, received, bound, frozen) = (0, Vec::new(), Vec::new(), false, None);
            Half { source, sink, inbox, said, sent, received, window, bound, frozen }
        });
        Self { chat, ends, halves }
    }

    /// True once all are sent.
    pub fn say(&mut self, pair: &mut Pair, dice: &mut Dice) -> bool {
        let mut all = true;
        for side in 0..2 {
            let lines = &self.chat.lines[side];
            for _ in 0..dice.below(4) {
                let Some(line) = lines.get(self.halves[side].said) else { break };
                // WRITEs need the bound window
                if line.write
                    && self.halves[1 - side].window.is_some()
                    && !self.halves[1 - side].bound
                {
                    break;
                }
                let said = self.halves[side].said;
                if self.chat.window[1 - side] == Some(said) {
                    self.take_back(1 - side, pair);
                }
                let wr = self.request(side, said, line, pair);
                match pair.try_post_send(&self.ends[side], &wr) {
                    Ok(()) => self.halves[side].said += 1,
                    Err(PostError::QueueFull) => break,
                    Err(error) => panic!("posting {wr:?}: {error}"),
                }
            }
            all &= self.halves[side].said == lines.len();
        }
        all
    }

    fn request(&self, side: usize, id: usize, line: &Line, pair: &mut Pair) -> SendWr {
        let (half, far) = (&self.halves[side], &self.halves[1 - side]);
        let data = half.source.sge(line.bytes.start, line.bytes.len());
        let immediate = line.immediate.map(Immediate);
        let op = if self.chat.datagrams {
            let peer = &self.ends[1 - side];
            SendOp::SendTo { to: pair.node(peer.side).destination(peer.qpn), immediate }
        } else if line.write {
            let mut remote = far.sink.remote(line.bytes.start);
            remote.rkey = far.window.unwrap_or(remote.rkey);
            SendOp::Write { remote, immediate }
        } else {
            SendOp::Send { immediate }
        };
        SendWr { op, ..SendWr::send(id as u64, data) }
    }

    fn take_back(&mut self, side: usize, pair: &mut Pair) {
        let half = &self.halves[side];
        if let Some(rkey) = half.window.filter(|_| half.bound && half.frozen.is_none()) {
            // with a full queue the window stays
            let _full =
                pair.try_post_send(&self.ends[side], &SendWr::local_invalidate(INVALIDATE, rkey));
        }
    }

    pub fn collect(&mut self) {
        for (end, half) in self.ends.iter().zip(&mut self.halves) {
            for wc in end.sent() {
                match wc.wr_id {
                    BIND => half.bound = wc.result.is_ok(),
                    INVALIDATE if wc.result.is_ok() => half.frozen = Some(half.sink.bytes()),
                    INVALIDATE => panic!("{wc:?}"),
                    _ => half.sent.push(wc),
                }
            }
            half.received.extend(end.received());
        }
    }

    pub fn check(&self, perfect: bool) {
        for side in 0..2 {
            let (half, lines) = (&self.halves[side], &self.chat.lines[side]);
            let ids: Vec<_> = half.sent.iter().map(|wc| (wc.wr_id, wc.result.is_ok())).collect();
            let must: Vec<_> = (0..lines.len()).map(|id| (id as u64, true)).collect();
            assert_eq!(ids, must, "requests of a service without acknowledgements");
            let heard: Vec<_> =
                self.halves[1 - side].received.iter().map(|wc| self.line_of(side, wc)).collect();
            if perfect && self.halves[1 - side].frozen.is_none() {
                let all: Vec<_> = (0..lines.len()).filter(|&id| lines[id].consumes()).collect();
                assert_eq!(heard.len(), all.len());
                for (heard, must) in heard.iter().zip(all) {
                    assert!(heard.contains(&must), "{heard:?} {must}");
                }
            }
            self.check_sink(side, &heard, perfect);
        }
    }

    fn line_of(&self, speaker: usize, wc: &Wc) -> Vec<usize> {
        let (lines, half) = (&self.chat.lines[speaker], &self.halves[1 - speaker]);
        let ok = wc.result.unwrap();
        let slot = self.chat.longest(speaker);
        let head = if self.chat.datagrams { GRH } else { 0 };
        let place = wc.wr_id as usize * slot + head;
        let matches = |line: &Line| {
            let length = line.bytes.len();
            let opcode = if line.write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
            let src_qp = self.chat.datagrams.then_some(self.ends[speaker].qpn);
            let immediate = line.immediate.map(Immediate);
            // other tests check the address family
            let grh = ok.grh.filter(|_| head > 0);
            let must = WcOk { immediate, src_qp, grh, ..WcOk::new(opcode, (head + length) as u32) };
            let said = || self.halves[speaker].source.part(line.bytes.start, length);
            line.consumes()
                && ok == must
                && ok.grh.is_some() == (head > 0)
                && (line.write || half.inbox.part(place, length) == said())
        };
        let found: Vec<_> = (0..lines.len()).filter(|&id| matches(&lines[id])).collect();
        assert!(!found.is_empty(), "no line has what arrived: {wc:?}");
        found
    }

    fn check_sink(&self, speaker: usize, heard: &[Vec<usize>], perfect: bool) {
        let (source, sink) =
            (self.halves[speaker].source.bytes(), self.halves[1 - speaker].sink.bytes());
        for (id, line) in self.chat.lines[speaker].iter().enumerate() {
            let (is, must) = (&sink[line.bytes.clone()], &source[line.bytes.clone()]);
            if !line.write {
                assert!(is.iter().all(|&byte| byte == 0), "memory without a write has changed");
                continue;
            }
            let bytes = is.iter().zip(must);
            assert!(bytes.clone().all(|(is, must)| is == must || *is == 0), "neither old nor new");
            let arrived = heard.iter().any(|lines| lines[..] == [id]);
            let granted = self.halves[1 - speaker].frozen.is_none();
            assert!(
                !(arrived || perfect && granted) || is == must,
                "a WRITE that is complete but not all there"
            );
        }
        if let Some(frozen) = &self.halves[1 - speaker].frozen {
            assert!(*frozen == sink, "written through a window that was taken back");
        }
    }

    pub fn tear_down(self, pair: &mut Pair) -> Vec<Buffer> {
        let mut buffers = Vec::new();
        for (end, half) in self.ends.iter().zip(self.halves) {
            let adapter = &mut pair.node(end.side).adapter;
            adapter.destroy_qp(end.qpn).unwrap();
            if let Some(rkey) = half.window {
                adapter.dealloc_window(WindowId::of(rkey)).unwrap();
            }
            for cq in [&end.send_cq, &end.recv_cq] {
                adapter.destroy_cq(cq.id()).unwrap();
            }
            for buffer in [half.source, half.sink, half.inbox] {
                adapter.deregister(&buffer.region).unwrap();
                buffers.push(buffer);
            }
        }
        buffers
    }
}
