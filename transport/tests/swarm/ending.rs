//! Bad ends: a last request refused without effect.

use roce_transport::{
    mem::{Access, WindowType},
    work::{Placement, WcStatus},
};

use super::{
    churn::Churn,
    dice::Dice,
    program::{Failure, Key, Kind, Op, Program, Step, Talk, Target, WindowSpec},
};

/// Half the time after all else.
pub fn add(talk: &mut Talk, program: &mut Program, churns: &[Churn], dice: &mut Dice) {
    let side = dice.below(2) as usize;
    let (mut op, failure) = make(side, talk, program, churns, dice);
    if dice.one_in(2) {
        for its in 0..2 {
            if let Some(last) = talk.next(its).checked_sub(1) {
                op.after.push(Step { talk: program.talks.len(), side: its, op: last });
            }
        }
    }
    for &step in &op.after {
        program.watch(talk, step);
    }
    op.fails = Some(failure);
    program.push(talk, side, op, dice);
}

const fn local(status: WcStatus) -> Failure {
    Failure { sender: Some(status), receiver: None }
}

const REFUSED: Failure = local(WcStatus::RemAccessErr);
const INVALID: Failure = local(WcStatus::RemInvReqErr);

fn make(
    side: usize,
    talk: &mut Talk,
    program: &mut Program,
    churns: &[Churn],
    dice: &mut Dice,
) -> (Op, Failure) {
    let peer = 1 - side;
    let word = talk.halves[side].word;
    let nothing = Vec::new;
    match dice.below(16) {
        0 => (use_of(Target { at: word, key: Key::Unknown }, side, program, dice), REFUSED),
        1 => (use_of(Target::at(1 << 40), side, program, dice), REFUSED),
        2 => {
            let kind = Kind::FetchAdd(Target::at(word + 1), 1);
            (Op::new(kind, program.allocate(side, 8, dice)), INVALID)
        }
        3 => {
            let read = Kind::Read(Target::at(word));
            let kind = if dice.one_in(2) { read } else { Kind::Send { invalidate: None } };
            let op = Op::new(kind, program.allocate(side, 1, dice));
            (Op { bad_list: true, ..op }, local(WcStatus::LocProtErr))
        }
        4 => {
            let window = window(side, talk, dice);
            let bind = Kind::Bind {
                window,
                generation: 200,
                start: 0,
                length: 1 << 40,
                access: Access::REMOTE_READ,
                zero_based: false,
            };
            (Op::new(bind, nothing()), local(WcStatus::MwBindErr))
        }
        5 => (Op::new(Kind::LocalInvalidate(Key::Unknown), nothing()), local(WcStatus::MwBindErr)),
        6 => {
            // unknown, a region's, an unbound window's
            let window = window(peer, talk, dice);
            let unbound =
                Key::Window { talk: program.talks.len(), window, generation: 200, base: None };
            let invalidate = Some(dice.pick(&[Key::Unknown, Key::Region, unbound]));
            let op = Op::new(Kind::Send { invalidate }, program.allocate(side, 5, dice));
            (op, Failure { sender: None, receiver: Some(WcStatus::RemInvReqErr) })
        }
        7 if !program.shared[peer] => {
            let length = 1 + program.options.mtu.bytes() * dice.below(2);
            let op = Op::new(
                Kind::Send { invalidate: None },
                program.allocate(side, length as usize, dice),
            );
            (
                op,
                Failure {
                    sender: Some(WcStatus::RemInvReqErr),
                    receiver: Some(WcStatus::LocLenErr),
                },
            )
        }
        8 => {
            let target = Target::at(word);
            let flush =
                Kind::Flush { target, length: 8, placement: Placement::PERSISTENT, whole: false };
            (Op::new(flush, nothing()), INVALID)
        }
        9 => {
            let window = window(peer, talk, dice);
            let key =
                Key::Window { talk: program.talks.len(), window, generation: 200, base: None };
            (use_of(Target { at: word, key }, side, program, dice), REFUSED)
        }
        10 | 11 => foreign(side, talk, program, dice),
        _ => of_churn(side, talk, program, churns, dice),
    }
}

fn use_of(target: Target, side: usize, program: &mut Program, dice: &mut Dice) -> Op {
    let kind = match dice.below(4) {
        0 => Kind::Read(target),
        1 => Kind::FetchAdd(target, 1),
        2 => Kind::AtomicWrite(target),
        _ => Kind::Write(target),
    };
    Op::new(kind, program.allocate(side, 8, dice))
}

fn window(owner: usize, talk: &mut Talk, dice: &mut Dice) -> usize {
    let window_type = dice.pick(&[WindowType::Type1, WindowType::Type2A, WindowType::Type2B]);
    talk.windows.push(WindowSpec { owner, window_type });
    talk.windows.len() - 1
}

/// Uses a window bound by another queue pair.
fn foreign(side: usize, talk: &Talk, program: &mut Program, dice: &mut Dice) -> (Op, Failure) {
    let bound = program.talks.iter().enumerate().find_map(|(number, other)| {
        if other.link == talk.link || other.cut.is_some() {
            return None;
        }
        let ops = &other.halves[1 - side].ops;
        let last = |found: usize| {
            !ops[found + 1..].iter().any(|op| matches!(op.kind, Kind::LocalInvalidate(_)))
        };
        let sends = other.halves[side]
            .ops
            .iter()
            .any(|op| matches!(op.kind, Kind::Send { invalidate: Some(_) }));
        ops.iter().enumerate().rev().find_map(|(index, op)| match op.kind {
            Kind::Bind { window, generation, start, length: 8.., zero_based, .. }
                if op.fails.is_none()
                    && last(index)
                    && !sends
                    && other.windows[window].window_type != WindowType::Type1 =>
            {
                let key = Key::Window {
                    talk: number,
                    window,
                    generation,
                    base: zero_based.then_some(start),
                };
                Some((Target { at: start, key }, Step { talk: number, side: 1 - side, op: index }))
            }
            _ => None,
        })
    });
    match bound {
        Some((target, since)) => {
            (Op { after: vec![since], ..use_of(target, side, program, dice) }, REFUSED)
        }
        None => (use_of(Target { at: 0, key: Key::Unknown }, side, program, dice), REFUSED),
    }
}

/// Uses a revoked key, or exceeds a grant.
fn of_churn(
    side: usize,
    talk: &Talk,
    program: &mut Program,
    churns: &[Churn],
    dice: &mut Dice,
) -> (Op, Failure) {
    for churn in churns.iter().filter(|churn| churn.owner != side) {
        let stale = churn.stale.iter().rev().find(|(_, since)| since.op != usize::MAX);
        if let Some(&(target, since)) = stale.filter(|_| !dice.one_in(4)) {
            // the old key must not reach the new one's memory
            let target = match churn.open {
                Some(open) => Target { at: open.start, key: target.key.based_on(open.key) },
                None => target,
            };
            let after = [since].into_iter().chain(churn.open.and_then(|open| open.since)).collect();
            return (Op { after, ..use_of(target, side, program, dice) }, REFUSED);
        }
        let Some(open) = churn.open.filter(|_| churn.window(talk).is_some()) else { continue };
        let after: Vec<_> = open.since.into_iter().collect();
        let beyond = Target { at: open.start + open.length - 7, key: open.key };
        let within = Target { at: open.start, key: open.key };
        let op = if !open.access.contains(Access::REMOTE_WRITE) {
            Op::new(Kind::AtomicWrite(within), program.allocate(side, 8, dice))
        } else if !open.access.contains(Access::REMOTE_READ) {
            Op::new(Kind::Read(within), program.allocate(side, 8, dice))
        } else {
            Op::new(Kind::Write(beyond), program.allocate(side, 8, dice))
        };
        return (Op { after, ..op }, REFUSED);
    }
    (use_of(Target { at: 0, key: Key::Unknown }, side, program, dice), REFUSED)
}
