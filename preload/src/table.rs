//! Rsockets by socket number.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicI32, Ordering},
};

use crate::function::is_inside;

/// Sockets above are plain TCP.
const MOST: usize = 1 << 16;

/// By socket: number plus one, and the state above; 0: none.
static RSOCKETS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

const STATE: u32 = 28;

/// Upper bound of the numbers.
pub(crate) const NUMBERS: c_int = (1 << STATE) - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    New,
    Listens,
    Connected,
    /// Accepted, no offer yet; the connection's number.
    Accepted,
    /// Offers an rsocket; the listener's number.
    Offered,
    /// Expects an offer; the connection's number.
    Expects,
    /// Has sent before the offer.
    Late,
}

impl State {
    pub(crate) fn is_pending(self) -> bool {
        matches!(self, Self::Accepted | Self::Offered | Self::Expects | Self::Late)
    }

    pub(crate) fn has_rsocket(self) -> bool {
        !self.is_pending() || self == Self::Offered
    }
}

fn place(fd: c_int) -> Option<&'static AtomicI32> {
    RSOCKETS.get(usize::try_from(fd).ok()?)
}

fn parse(value: i32) -> Option<(c_int, State)> {
    use State::{Accepted, Connected, Expects, Late, Listens, New, Offered};
    let states = [New, Listens, Connected, Accepted, Offered, Expects, Late];
    let number = (value & NUMBERS).checked_sub(1).filter(|number| *number >= 0)?;
    Some((number, states[(value >> STATE) as usize]))
}

fn value(number: c_int, state: State) -> i32 {
    (number + 1) | (i32::from(state as u8) << STATE)
}

/// A socket's entry; `None` inside librdmacm.
pub(crate) fn entry(fd: c_int) -> Option<(c_int, State)> {
    if is_inside() {
        return None;
    }
    parse(place(fd)?.load(Ordering::Acquire))
}

pub(crate) fn find(fd: c_int) -> Option<(c_int, State)> {
    entry(fd).filter(|(_, state)| state.has_rsocket())
}

/// The rsocket that replaces the socket.
pub(crate) fn connected(fd: c_int) -> Option<c_int> {
    find(fd).filter(|(_, state)| *state == State::Connected).map(|(number, _)| number)
}

pub(crate) fn pending(fd: c_int) -> Option<(c_int, State)> {
    entry(fd).filter(|(_, state)| state.is_pending())
}

/// False if out of range.
pub(crate) fn put(fd: c_int, number: c_int, state: State) -> bool {
    let Some(place) = place(fd).filter(|_| (0..NUMBERS).contains(&number)) else { return false };
    place.store(value(number, state), Ordering::Release);
    true
}

/// The connection's sockets.
pub(crate) fn change(from: (c_int, State), to: Option<(c_int, State)>) -> Vec<c_int> {
    let to = to.map_or(0, |(number, state)| value(number, state));
    let from = value(from.0, from.1);
    let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    let changes = |place: &AtomicI32| place.compare_exchange(from, to, success, failure).is_ok();
    (0..).zip(&RSOCKETS).filter(|(_, place)| changes(place)).map(|(fd, _)| fd).collect()
}

/// Returns the removed rsocket, and true if no other socket has it.
pub(crate) fn take(fd: c_int) -> Option<(c_int, bool)> {
    let (number, state) = parse(place(fd)?.swap(0, Ordering::AcqRel))?;
    let is_same = |place: &AtomicI32| {
        parse(place.load(Ordering::Acquire))
            .is_some_and(|(other, state)| other == number && state.has_rsocket())
    };
    state.has_rsocket().then(|| (number, !RSOCKETS.iter().any(is_same)))
}
