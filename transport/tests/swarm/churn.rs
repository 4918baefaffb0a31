//! Changing memory: windows rebound, regions reregistered.

use roce_transport::{
    mem::{Access, WindowType},
    work::{Placement, SendFlags},
};

use super::{
    dice::Dice,
    program::{Key, Kind, Op, Program, REMOTE, SpareSpec, Step, Talk, Target, WindowSpec},
};
use crate::common::ALL_RIGHTS;

pub struct Churn {
    pub owner: usize,
    what: What,
    /// Usable now.
    pub open: Option<Open>,
    /// Precedes the owner's next use.
    released: Option<Step>,
    /// Revoked keys and steps.
    pub stale: Vec<(Target, Step)>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Window { window: usize, generation: u32 },
    Spare { spare: usize },
}

/// Memory usable by the peer.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub key: Key,
    pub start: usize,
    pub length: usize,
    pub access: Access,
    used: usize,
    /// Precedes the peer's use.
    pub since: Option<Step>,
    last_use: Option<Step>,
    was_read: bool,
}

impl Churn {
    pub fn new(talk: &mut Talk, program: &mut Program, dice: &mut Dice) -> Self {
        let owner = dice.below(2) as usize;
        let length = Self::length(program, dice);
        let what = if dice.one_in(3) {
            let start = program.allocate_words(owner, length);
            talk.spares.push(SpareSpec { owner, start, length });
            What::Spare { spare: talk.spares.len() - 1 }
        } else {
            // type 2 is the binding queue pair's; XRC targets bind none
            let types = [WindowType::Type1, WindowType::Type2A, WindowType::Type2B];
            let window_type = if program.xrc { WindowType::Type1 } else { dice.pick(&types) };
            talk.windows.push(WindowSpec { owner, window_type });
            What::Window { window: talk.windows.len() - 1, generation: 0 }
        };
        let open = match what {
            What::Spare { spare } => {
                let start = talk.spares[spare].start;
                Some(Open::new(Key::Spare { spare, base: start }, start, length, REMOTE, None))
            }
            What::Window { .. } => None,
        };
        Self { owner, what, open, released: None, stale: Vec::new() }
    }

    fn length(program: &Program, dice: &mut Dice) -> usize {
        let mtu = program.options.mtu.bytes();
        dice.range(8, 3 * mtu).next_multiple_of(8) as usize
    }

    /// Window, and true for type 2.
    pub fn window(&self, talk: &Talk) -> Option<(usize, bool)> {
        match self.what {
            What::Window { window, .. } => {
                Some((window, talk.windows[window].window_type != WindowType::Type1))
            }
            What::Spare { .. } => None,
        }
    }

    pub fn step(&mut self, talk: &mut Talk, program: &mut Program, dice: &mut Dice) {
        match (self.open, self.what) {
            (Some(open), _) if open.last_use.is_none() || !dice.one_in(3) => {
                self.use_it(open, talk, program, dice);
            }
            (Some(open), What::Spare { spare }) => {
                self.reregister(spare, open, talk, program, dice);
            }
            (Some(open), What::Window { window, .. }) => {
                self.release(window, open, talk, program, dice);
            }
            (None, What::Window { window, generation }) => {
                self.bind(window, generation, talk, program, dice);
            }
            (None, What::Spare { .. }) => {}
        }
    }

    fn bind(
        &mut self,
        window: usize,
        generation: u32,
        talk: &mut Talk,
        program: &mut Program,
        dice: &mut Dice,
    ) {
        let length = Self::length(program, dice);
        let start = program.allocate_words(self.owner, length);
        let read = Access::REMOTE_READ | Access::FLUSH_GLOBAL;
        let access =
            dice.pick(&[REMOTE, REMOTE, read, Access::REMOTE_WRITE, REMOTE - Access::REMOTE_READ]);
        let zero_based = talk.windows[window].window_type != WindowType::Type1 && dice.one_in(3);
        let kind = Kind::Bind { window, generation, start, length, access, zero_based };
        let mut op = Op::new(kind, Vec::new());
        op.after.extend(self.released.take().map(|step| program.watch(talk, step)));
        let step = program.push(talk, self.owner, op, dice);
        let base = zero_based.then_some(start);
        let key = Key::Window { talk: program.talks.len(), window, generation, base };
        // rebinding type 1 invalidates its old key
        if let Some((_, since)) = self.stale.last_mut().filter(|(_, since)| since.op == usize::MAX)
        {
            *since = step;
        }
        self.open = Some(Open::new(key, start, length, access, Some(step)));
        self.what = What::Window { window, generation: generation + 1 };
    }

    fn use_it(&mut self, mut open: Open, talk: &mut Talk, program: &mut Program, dice: &mut Dice) {
        let user = 1 - self.owner;
        let words = open.used.next_multiple_of(8);
        let target = Target { at: open.start + open.used, key: open.key };
        let word = Target { at: open.start + words, key: open.key };
        let rest = open.length - open.used;
        let length = dice.below(rest as u32 + 1) as usize;
        let has_word = words + 8 <= open.length;
        let (kind, used, local) = match dice.below(5) {
            0 if open.access.contains(Access::REMOTE_READ) => {
                (Kind::Read(target), open.used + length, length)
            }
            1 if open.access.contains(Access::REMOTE_ATOMIC) && has_word => {
                let kind = if dice.one_in(2) {
                    Kind::FetchAdd(word, u64::from(dice.below(1 << 30)))
                } else {
                    Kind::CompareSwap { word, compare: dice.below(2).into(), swap: 7 }
                };
                (kind, words + 8, 8)
            }
            2 if open.access.contains(Access::REMOTE_WRITE) && has_word => {
                (Kind::AtomicWrite(word), words + 8, 8)
            }
            3 if open.access.contains(Access::FLUSH_GLOBAL) => {
                let flush = Kind::Flush {
                    target,
                    length,
                    placement: Placement::GLOBAL,
                    whole: dice.one_in(2),
                };
                (flush, open.used, 0)
            }
            _ if open.access.contains(Access::REMOTE_WRITE) => {
                (Kind::Write(target), open.used + length, length)
            }
            _ => (Kind::Read(target), open.used + length, length),
        };
        let local = if local == 0 { Vec::new() } else { program.allocate(user, local, dice) };
        let mut op = Op::new(kind, local);
        if matches!(op.kind, Kind::Write(_)) && dice.one_in(4) {
            op.immediate = Some([7; 4]);
        }
        op.after.extend(open.since.map(|step| program.watch(talk, step)));
        open.was_read |= matches!(op.kind, Kind::Read(_));
        open.used = used;
        open.last_use = Some(program.push(talk, user, op, dice));
        self.open = Some(open);
    }

    /// Type 1 may stay bound.
    fn release(
        &mut self,
        window: usize,
        open: Open,
        talk: &mut Talk,
        program: &mut Program,
        dice: &mut Dice,
    ) {
        let (owner, user) = (self.owner, 1 - self.owner);
        let target = Target { at: open.start, key: open.key };
        self.open = None;
        if talk.windows[window].window_type == WindowType::Type1 {
            self.released = open.last_use;
            let What::Window { generation, .. } = self.what else { return };
            if dice.one_in(2) {
                let access = Access::empty();
                let kind = Kind::Bind {
                    window,
                    generation,
                    start: open.start,
                    length: 0,
                    access,
                    zero_based: false,
                };
                let mut op = Op::new(kind, Vec::new());
                op.after.extend(open.last_use.map(|step| program.watch(talk, step)));
                let step = program.push(talk, owner, op, dice);
                self.stale.push((target, step));
                self.what = What::Window { window, generation: generation + 1 };
            } else {
                self.stale.push((
                    target,
                    Step { talk: program.talks.len(), side: owner, op: usize::MAX },
                ));
            }
            return;
        }
        let step = if dice.one_in(2) {
            let length = dice.pick(&[0, 1, program.options.mtu.bytes() + 1]) as usize;
            let mut op = Op::new(
                Kind::Send { invalidate: Some(open.key) },
                program.allocate(user, length, dice),
            );
            // a READ response may still leave unless fenced
            if open.was_read || dice.one_in(2) {
                op.flags |= SendFlags::FENCE;
            }
            op.after.extend(open.since.map(|step| program.watch(talk, step)));
            program.push(talk, user, op, dice)
        } else {
            let mut op = Op::new(Kind::LocalInvalidate(open.key), Vec::new());
            op.after.extend(open.last_use.map(|step| program.watch(talk, step)));
            program.push(talk, owner, op, dice)
        };
        self.stale.push((target, step));
        self.released = Some(step);
    }

    fn reregister(
        &mut self,
        spare: usize,
        open: Open,
        talk: &mut Talk,
        program: &mut Program,
        dice: &mut Dice,
    ) {
        let to = program.allocate_words(self.owner, open.length);
        let mut op = Op::new(Kind::Reregister { spare, to, access: ALL_RIGHTS }, Vec::new());
        op.after.extend(open.last_use.map(|step| program.watch(talk, step)));
        let step = program.push(talk, self.owner, op, dice);
        self.open =
            Some(Open::new(Key::Spare { spare, base: to }, to, open.length, REMOTE, Some(step)));
    }
}

impl Open {
    fn new(key: Key, start: usize, length: usize, access: Access, since: Option<Step>) -> Self {
        Self { key, start, length, access, used: 0, since, last_use: None, was_read: false }
    }
}
