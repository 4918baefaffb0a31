//! The rsockets beside the program's sockets, by the numbers of those.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicI32, Ordering},
};

use crate::function::is_inside;

/// Sockets with greater numbers are plain TCP.
const MOST: usize = 1 << 16;

/// The number of the rsocket and one more, with a bit for its state; 0: there is none.
static RSOCKETS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

const LISTENS: i32 = 1 << 30;
const CONNECTED: i32 = 1 << 29;
const NUMBER: i32 = CONNECTED - 1;

/// What an rsocket does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    New,
    Listens,
    Connected,
}

fn place(fd: c_int) -> Option<&'static AtomicI32> {
    RSOCKETS.get(usize::try_from(fd).ok()?)
}

fn parse(value: i32) -> Option<(c_int, State)> {
    let state = match value {
        0 => return None,
        value if value & LISTENS != 0 => State::Listens,
        value if value & CONNECTED != 0 => State::Connected,
        _ => State::New,
    };
    Some(((value & NUMBER) - 1, state))
}

/// The rsocket beside a socket, if there is one; none for librdmacm itself.
pub(crate) fn find(fd: c_int) -> Option<(c_int, State)> {
    if is_inside() {
        return None;
    }
    parse(place(fd)?.load(Ordering::Acquire))
}

/// The rsocket that has taken the place of a socket.
pub(crate) fn connected(fd: c_int) -> Option<c_int> {
    find(fd).filter(|(_, state)| *state == State::Connected).map(|(number, _)| number)
}

/// Puts an rsocket beside a socket; false if that cannot be.
pub(crate) fn put(fd: c_int, rsocket: c_int, state: State) -> bool {
    let bit = match state {
        State::New => 0,
        State::Listens => LISTENS,
        State::Connected => CONNECTED,
    };
    let Some(place) = place(fd).filter(|_| (0..NUMBER).contains(&rsocket)) else { return false };
    place.store((rsocket + 1) | bit, Ordering::Release);
    true
}

/// Takes it away. The second is true if it is beside no other socket.
pub(crate) fn take(fd: c_int) -> Option<(c_int, bool)> {
    let (number, _) = parse(place(fd)?.swap(0, Ordering::AcqRel))?;
    let is_same = |place: &AtomicI32| {
        parse(place.load(Ordering::Acquire)).is_some_and(|(other, _)| other == number)
    };
    Some((number, !RSOCKETS.iter().any(is_same)))
}
