use std::collections::BTreeMap;

use roce_transport::{
    wire::Immediate,
    work::{SendFlags, WcOk, WcOpcode},
};

use super::program::{Key, Kind, Op, Pieces, Program, Talk};

pub const fn id(talk: usize, index: usize) -> u64 {
    (talk * 1000 + index) as u64
}

pub struct Expected {
    pub memory: [Vec<u8>; 2],
    pub talks: Vec<ExpectedTalk>,
}

#[derive(Default)]
pub struct ExpectedTalk {
    /// Completions of signaled requests, except a failing one.
    pub sent: [Vec<(u64, WcOk)>; 2],
    /// Except a failing message's.
    pub received: [Vec<Received>; 2],
    /// Values of each side's atomic word, oldest first.
    pub word: [Vec<u64>; 2],
    /// Failing messages' buffers, unspecified.
    pub vague: [Pieces; 2],
    /// Bytes of later WRITEs that a repeated READ may return.
    pub newer: [BTreeMap<usize, u8>; 2],
}

pub struct Received {
    /// Excludes the invalidated key.
    pub ok: WcOk,
    pub invalidated: Option<Key>,
    pub bytes: Vec<u8>,
}

impl Expected {
    pub fn of(program: &Program, start: &[Vec<u8>; 2]) -> Self {
        let mut memory = start.clone();
        let talks = program.talks.iter().enumerate().map(|(number, talk)| {
            let mut expected = ExpectedTalk::default();
            for side in 0..2 {
                run_half(program, number, talk, side, &mut memory, &mut expected);
            }
            expected
        });
        let talks = talks.collect();
        Self { memory, talks }
    }
}

fn run_half(
    program: &Program,
    number: usize,
    talk: &Talk,
    side: usize,
    memory: &mut [Vec<u8>; 2],
    expected: &mut ExpectedTalk,
) {
    let word = talk.halves[side].word;
    let value = |memory: &[Vec<u8>; 2]| {
        u64::from_ne_bytes(memory[1 - side][word..word + 8].try_into().unwrap())
    };
    expected.word[side].push(value(memory));
    let mut receives = talk.halves[1 - side].receives.iter();
    for (index, op) in talk.halves[side].ops.iter().enumerate() {
        if op.fails.is_some() && op.consumes() {
            expected.vague[1 - side] = receives.clone().next().cloned().unwrap_or_default();
        }
        if op.fails.is_some_and(|failure| failure.sender.is_some()) {
            break;
        }
        let signaled = program.options.sq_sig_all || op.flags.contains(SendFlags::SIGNALED);
        let ok = WcOk::new(opcode(op), if reads(op) { op.length() as u32 } else { 0 });
        if op.is_request() && signaled {
            expected.sent[side].push((id(number, index), ok));
        }
        if op.fails.is_some() {
            break;
        }
        let bytes = gather(&memory[side], &op.local);
        execute(op, &bytes, side, memory);
        for read in &talk.halves[side].ops[..index] {
            if matches!(read.kind, Kind::Read(source) if op.is_write_to(source.at)) {
                expected.newer[side].extend(places(&read.local).zip(bytes.iter().copied()));
            }
        }
        expected.word[side].push(value(memory));
        if op.consumes() {
            let opcode = if matches!(op.kind, Kind::Send { .. }) {
                WcOpcode::Recv
            } else {
                WcOpcode::RecvRdmaWithImm
            };
            if let Some(pieces) = receives.next().filter(|_| opcode == WcOpcode::Recv) {
                scatter(&mut memory[1 - side], pieces, &bytes);
            }
            let ok = WcOk {
                immediate: op.immediate.map(Immediate),
                ..WcOk::new(opcode, op.length() as u32)
            };
            let invalidated =
                if let Kind::Send { invalidate } = op.kind { invalidate } else { None };
            let bytes = if opcode == WcOpcode::Recv { bytes } else { Vec::new() };
            expected.received[1 - side].push(Received { ok, invalidated, bytes });
        }
    }
}

fn reads(op: &Op) -> bool {
    matches!(op.kind, Kind::Read(_) | Kind::FetchAdd(..) | Kind::CompareSwap { .. })
}

const fn opcode(op: &Op) -> WcOpcode {
    match op.kind {
        Kind::Send { .. } => WcOpcode::Send,
        Kind::Write(_) => WcOpcode::RdmaWrite,
        Kind::Read(_) => WcOpcode::RdmaRead,
        Kind::FetchAdd(..) => WcOpcode::FetchAdd,
        Kind::CompareSwap { .. } => WcOpcode::CompSwap,
        Kind::AtomicWrite(_) => WcOpcode::AtomicWrite,
        Kind::Flush { .. } => WcOpcode::Flush,
        Kind::Bind { .. } => WcOpcode::BindMw,
        Kind::LocalInvalidate(_) | Kind::Reregister { .. } => WcOpcode::LocalInv,
    }
}

/// Except to receive buffers.
fn execute(op: &Op, bytes: &[u8], side: usize, memory: &mut [Vec<u8>; 2]) {
    match op.kind {
        Kind::Write(target) | Kind::AtomicWrite(target) => {
            memory[1 - side][target.at..target.at + bytes.len()].copy_from_slice(bytes);
        }
        Kind::Read(target) => {
            let read = memory[1 - side][target.at..target.at + op.length()].to_vec();
            scatter(&mut memory[side], &op.local, &read);
        }
        Kind::FetchAdd(word, _) | Kind::CompareSwap { word, .. } => {
            let at = word.at..word.at + 8;
            let found = memory[1 - side][at.clone()].to_vec();
            let old = u64::from_ne_bytes(found[..].try_into().unwrap());
            let new = match op.kind {
                Kind::CompareSwap { compare, swap, .. } if old == compare => swap,
                Kind::FetchAdd(_, add) => old.wrapping_add(add),
                _ => old,
            };
            memory[1 - side][at].copy_from_slice(&new.to_ne_bytes());
            scatter(&mut memory[side], &op.local, &found);
        }
        _ => {}
    }
}

pub fn gather(memory: &[u8], pieces: &Pieces) -> Vec<u8> {
    pieces.iter().flat_map(|&(at, length)| memory[at..at + length].iter().copied()).collect()
}

fn places(pieces: &Pieces) -> impl Iterator<Item = usize> {
    pieces.iter().flat_map(|&(at, length)| at..at + length)
}

fn scatter(memory: &mut [u8], pieces: &Pieces, mut bytes: &[u8]) {
    for &(at, length) in pieces {
        let (here, rest) = bytes.split_at(length.min(bytes.len()));
        memory[at..at + here.len()].copy_from_slice(here);
        bytes = rest;
    }
}
