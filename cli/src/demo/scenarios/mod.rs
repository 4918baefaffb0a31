//! What the scenarios do, a file for each subject.

pub(super) mod congestion;
pub(super) mod connecting;
pub(super) mod datagrams;
pub(super) mod loss;
pub(super) mod reliable;
pub(super) mod shared;
