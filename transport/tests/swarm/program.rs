//! Programs as values.
//!
//! A [`Talk`] is a connection's life. Interleaving does not matter: operations touch disjoint
//! bytes, except atomic words, and READs and WRITEs of one queue pair. [`after`](Op::after) orders
//! others.

use std::{ops::Range, time::Duration};

use roce_transport::{
    addr::Mtu,
    mem::{Access, WindowType},
    qp::QpCaps,
    work::{Placement, SendFlags, WcStatus},
};

use super::{churn::Churn, dice::Dice, ending, unreliable::Chat};
use crate::common::Options;

pub type Pieces = Vec<(usize, usize)>;

pub const REMOTE: Access =
    Access::REMOTE_READ.union(Access::REMOTE_CHANGE).union(Access::FLUSH_GLOBAL);

/// `Window`: a talk's, after its n-th bind, with addresses from `base`. `Spare`: a talk's region
/// over memory from `base`.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    Region,
    Window { talk: usize, window: usize, generation: u32, base: Option<usize> },
    Spare { spare: usize, base: usize },
    Unknown,
}

impl Key {
    pub fn based_on(self, other: Self) -> Self {
        match (self, other) {
            (Self::Window { talk, window, generation, .. }, Self::Window { base, .. }) => {
                Self::Window { talk, window, generation, base }
            }
            _ => self,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Offset in the main memory.
    pub at: usize,
    pub key: Key,
}

impl Target {
    pub fn at(at: usize) -> Self {
        Self { at, key: Key::Region }
    }
}

#[derive(Clone, Debug)]
pub enum Kind {
    Send {
        invalidate: Option<Key>,
    },
    Write(Target),
    Read(Target),
    FetchAdd(Target, u64),
    CompareSwap {
        word: Target,
        compare: u64,
        swap: u64,
    },
    AtomicWrite(Target),
    Flush {
        target: Target,
        length: usize,
        placement: Placement,
        whole: bool,
    },
    Bind {
        window: usize,
        generation: u32,
        start: usize,
        length: usize,
        access: Access,
        zero_based: bool,
    },
    LocalInvalidate(Key),
    Reregister {
        spare: usize,
        to: usize,
        access: Access,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Step {
    pub talk: usize,
    pub side: usize,
    pub op: usize,
}

#[derive(Clone, Debug)]
pub struct Op {
    pub kind: Kind,
    pub local: Pieces,
    pub immediate: Option<[u8; 4]>,
    pub flags: SendFlags,
    pub inline: bool,
    pub after: Vec<Step>,
    pub fails: Option<Failure>,
    /// An SGE's key is unknown.
    pub bad_list: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// `None`: no error.
    pub sender: Option<WcStatus>,
    pub receiver: Option<WcStatus>,
}

impl Op {
    pub fn new(kind: Kind, local: Pieces) -> Self {
        let (immediate, flags, after) = (None, SendFlags::empty(), Vec::new());
        Self { kind, local, immediate, flags, inline: false, after, fails: None, bad_list: false }
    }

    pub fn length(&self) -> usize {
        self.local.iter().map(|(_, length)| length).sum()
    }

    pub fn consumes(&self) -> bool {
        matches!(self.kind, Kind::Send { .. }) || self.immediate.is_some()
    }

    /// Source of a main region READ of at least `length`.
    fn is_read_of(&self, length: usize) -> Option<usize> {
        match self.kind {
            Kind::Read(Target { at, key: Key::Region })
                if self.fails.is_none() && length > 0 && self.length() >= length =>
            {
                Some(at)
            }
            _ => None,
        }
    }

    pub fn is_write_to(&self, at: usize) -> bool {
        matches!(self.kind, Kind::Write(Target { at: its, key: Key::Region }) if its == at)
    }

    pub fn is_request(&self) -> bool {
        !matches!(self.kind, Kind::Reregister { .. })
    }
}

#[derive(Default, Debug)]
pub struct Half {
    pub ops: Vec<Op>,
    /// Empty with a shared receive queue.
    pub receives: Vec<Pieces>,
    /// Posted before the peer starts.
    pub early: usize,
    /// The peer's, for atomics.
    pub word: usize,
}

#[derive(Debug)]
pub struct WindowSpec {
    pub owner: usize,
    pub window_type: WindowType,
}

/// Reregistered during the run.
#[derive(Debug)]
pub struct SpareSpec {
    pub owner: usize,
    pub start: usize,
    pub length: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub after: Duration,
    pub how: How,
    /// Affected, or first.
    pub side: usize,
}

/// `Reset`: both ends, `gap` apart, then reconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    Reset { gap: Duration },
    Destroy,
    Error,
}

#[derive(Debug)]
pub struct Talk {
    /// Talks on it are sequential.
    pub link: usize,
    pub halves: [Half; 2],
    pub windows: Vec<WindowSpec>,
    pub spares: Vec<SpareSpec>,
    pub memory: [Range<usize>; 2],
    pub cut: Option<Cut>,
}

impl Talk {
    pub fn is_doomed(&self) -> bool {
        self.cut.is_some()
            || self.halves.iter().any(|half| half.ops.iter().any(|op| op.fails.is_some()))
    }

    pub fn next(&self, side: usize) -> usize {
        self.halves[side].ops.len()
    }
}

pub struct Program {
    pub options: Options,
    mostly_reads: bool,
    pub links: usize,
    pub talks: Vec<Talk>,
    pub chats: Vec<Chat>,
    pub memory: [usize; 2],
    /// Shared receive queue, per side.
    pub shared: [bool; 2],
    /// One connection each way, with an SRQ per end.
    pub xrc: bool,
}

impl Program {
    pub fn new(dice: &mut Dice) -> Self {
        let reads = dice.pick(&[1, 2, 3, 4, 16]);
        let options = Options {
            mtu: dice.pick(&Mtu::ALL),
            timeout: dice.pick(&[7, 8, 9]) as u8,
            // few retries let some programs fail
            retry_cnt: if dice.one_in(20) { dice.below(2) as u8 } else { 7 },
            rnr_retry: 7,
            min_rnr_timer: dice.range(1, 11) as u8,
            max_rd_atomic: reads,
            max_dest_rd_atomic: reads,
            access: REMOTE,
            sq_sig_all: dice.one_in(4),
            traffic_class: dice.pick(&[0, 1, 2]),
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
        let xrc = dice.one_in(5);
        let shared = [0, 1].map(|_| dice.one_in(5) && !xrc);
        let mut program = Self {
            options,
            mostly_reads: dice.one_in(4),
            links: dice.range(1, 3) as usize,
            talks: Vec::new(),
            chats: Vec::new(),
            memory: [0, 0],
            shared,
            xrc,
        };
        for link in 0..program.links {
            let cut = |dice: &mut Dice, how| Cut {
                after: Duration::from_micros(dice.below(600).into()),
                how,
                side: dice.below(2) as usize,
            };
            match dice.below(16) {
                _ if xrc => program.talk(link, None, dice),
                0..=2 => {
                    for _ in 0..dice.range(1, 2) {
                        let gap = Duration::from_micros(dice.pick(&[0, 0, 1, 20, 100]));
                        let cut = cut(dice, How::Reset { gap });
                        program.talk(link, Some(cut), dice);
                    }
                    program.talk(link, None, dice);
                }
                3 => {
                    let cut = cut(dice, How::Destroy);
                    program.talk(link, Some(cut), dice);
                }
                4 => {
                    let cut = cut(dice, How::Error);
                    program.talk(link, Some(cut), dice);
                }
                _ => program.talk(link, None, dice),
            }
        }
        if dice.one_in(3) {
            program.chats.push(Chat::new(options.mtu, dice));
        }
        program
    }

    fn talk(&mut self, link: usize, cut: Option<Cut>, dice: &mut Dice) {
        let start = self.memory;
        let halves = [0, 1]
            .map(|side: usize| Half { word: self.allocate_words(1 - side, 8), ..Half::default() });
        let memory = start.map(|start| start..start);
        let mut talk = Talk { link, halves, windows: Vec::new(), spares: Vec::new(), memory, cut };
        let mut churns: Vec<_> =
            (0..dice.pick(&[0, 0, 1, 2, 2])).map(|_| Churn::new(&mut talk, self, dice)).collect();
        for _ in 0..dice.range(0, 14) {
            let choice = dice.below(4) as usize;
            match churns.get_mut(choice) {
                Some(churn) => churn.step(&mut talk, self, dice),
                None => self.add(&mut talk, dice.below(2) as usize, dice),
            }
        }
        if cut.is_none() && !self.xrc && dice.one_in(6) {
            ending::add(&mut talk, self, &churns, dice);
        }
        for half in &mut talk.halves {
            half.early = dice.below(half.receives.len() as u32 + 1) as usize;
        }
        talk.memory = [0, 1].map(|side| start[side]..self.memory[side]);
        self.talks.push(talk);
    }

    fn add(&mut self, talk: &mut Talk, side: usize, dice: &mut Dice) {
        if dice.one_in(6) {
            let op = self.atomic(talk.halves[side].word, side, dice);
            talk.halves[side].ops.push(op);
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
        let kind = match if self.mostly_reads { dice.below(12) } else { dice.below(5) } {
            0 => Kind::Send { invalidate: None },
            1 => Kind::Write(Target::at(self.write_target(&talk.halves[side], side, length, dice))),
            2 => Kind::AtomicWrite(Target::at(self.allocate_words(1 - side, 8))),
            3 => Kind::Flush {
                target: Target::at(self.memory[1 - side] - 1),
                length: 1,
                placement: Placement::GLOBAL,
                whole: dice.one_in(2),
            },
            _ => Kind::Read(Target::at(self.read_source(&talk.halves[side], side, length, dice))),
        };
        let length = match kind {
            Kind::AtomicWrite(_) => 8,
            Kind::Flush { .. } => 0,
            _ => length,
        };
        let mut op = Op::new(kind, self.allocate(side, length, dice));
        if matches!(op.kind, Kind::Flush { .. }) {
            op.local.clear();
        }
        if matches!(op.kind, Kind::Send { .. } | Kind::Write(_)) && dice.one_in(3) {
            op.immediate = Some(dice.below(u32::MAX).to_be_bytes());
        }
        self.push(talk, side, op, dice);
    }

    pub fn push(&mut self, talk: &mut Talk, side: usize, mut op: Op, dice: &mut Dice) -> Step {
        let may_be_inline =
            matches!(op.kind, Kind::Send { .. } | Kind::Write(_) | Kind::AtomicWrite(_))
                && !op.bad_list;
        op.inline = may_be_inline && op.length() <= 64 && dice.one_in(2);
        for (flag, chance) in
            [(SendFlags::SIGNALED, 2), (SendFlags::FENCE, 5), (SendFlags::SOLICITED, 5)]
        {
            if dice.one_in(chance) {
                op.flags |= flag;
            }
        }
        if op.consumes() && !self.shared[1 - side] {
            let pieces = match op.kind {
                Kind::Send { .. }
                    if op
                        .fails
                        .is_some_and(|failure| failure.receiver == Some(WcStatus::LocLenErr)) =>
                {
                    self.allocate(1 - side, op.length() - 1, dice)
                }
                Kind::Send { .. } => {
                    let room = op.length() + dice.pick(&[0, 0, 1, 5000]);
                    self.allocate(1 - side, room, dice)
                }
                _ => Pieces::new(),
            };
            talk.halves[1 - side].receives.push(pieces);
        }
        talk.halves[side].ops.push(op);
        Step { talk: self.talks.len(), side, op: talk.halves[side].ops.len() - 1 }
    }

    /// Signals the completion.
    pub fn watch(&mut self, talk: &mut Talk, step: Step) -> Step {
        let its = if step.talk == self.talks.len() { talk } else { &mut self.talks[step.talk] };
        its.halves[step.side].ops[step.op].flags |= SendFlags::SIGNALED;
        step
    }

    fn atomic(&mut self, word: usize, side: usize, dice: &mut Dice) -> Op {
        // comparisons sometimes match
        let (first, second) = (dice.below(3).into(), dice.below(3).into());
        let kind = if dice.one_in(2) {
            Kind::FetchAdd(Target::at(word), first)
        } else {
            Kind::CompareSwap { word: Target::at(word), compare: first, swap: second }
        };
        let flags = if dice.one_in(2) { SendFlags::SIGNALED } else { SendFlags::empty() };
        Op { flags, ..Op::new(kind, self.allocate(side, 8, dice)) }
    }

    /// New memory, or an earlier WRITE.
    fn read_source(&mut self, half: &Half, side: usize, length: usize, dice: &mut Dice) -> usize {
        let written = half.ops.iter().rev().find_map(|op| match op.kind {
            Kind::Write(Target { at, key: Key::Region }) if op.length() >= length => Some(at),
            _ => None,
        });
        match written.filter(|_| dice.one_in(2)) {
            Some(at) => at,
            None => {
                let start = self.memory[1 - side];
                self.memory[1 - side] += length + dice.below(4) as usize;
                start
            }
        }
    }

    /// New memory, or an earlier READ.
    fn write_target(&mut self, half: &Half, side: usize, length: usize, dice: &mut Dice) -> usize {
        let read = half.ops.iter().rev().find_map(|op| op.is_read_of(length));
        let is_written = |at| half.ops.iter().any(|op| op.is_write_to(at));
        match read.filter(|&at| !is_written(at) && dice.one_in(2)) {
            Some(at) => at,
            None => self.allocate(1 - side, length, dice).first().map_or(0, |first| first.0),
        }
    }

    /// The first piece holds all of a WRITE.
    pub fn allocate(&mut self, side: usize, length: usize, dice: &mut Dice) -> Pieces {
        let mut pieces = Pieces::new();
        let mut left = length;
        while left > 0 || (pieces.is_empty() && dice.one_in(2)) {
            let size = if pieces.len() == 3 || dice.one_in(2) {
                left
            } else {
                dice.below(left as u32 + 1) as usize
            };
            pieces.push((self.memory[side], size));
            self.memory[side] += size;
            left -= size;
        }
        // gaps only between requests: a WRITE's far end is whole
        self.memory[side] += dice.below(4) as usize;
        pieces
    }

    pub fn allocate_words(&mut self, side: usize, length: usize) -> usize {
        let start = self.memory[side].next_multiple_of(8);
        self.memory[side] = start + length.next_multiple_of(8);
        start
    }

    pub fn longest(&self) -> usize {
        6 * self.options.mtu.bytes() as usize + 8
    }
}
