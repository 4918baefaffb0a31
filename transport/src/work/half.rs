/// One half of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Half {
    Requester,
    Responder,
}

/// Owner of bytes and completions that may be late.
pub(crate) type QpHalf = (u32, Half);
