//! Conformance of an adapter to RoCEv2: cases, and a runner that plays them.
//!
//! A [`Case`] is a short text: the connection of the device under test, packets for it, and the
//! answers that it must give. `docs/guide/cases.md` has the language. [`chapters`] are the cases
//! that come with this crate, [`Chapter::parse`] reads others. A [`Runner`] plays them against a
//! [`Subject`]: an adapter of this project [in virtual time](Simulated), or a device that a program
//! reaches over a network.
//!
//! Nothing here opens a socket, reads a clock or waits: a [`Subject`] does.

pub mod case;
mod dialog;
mod known;
mod outcome;
mod packet;
mod parse;
mod run;
mod simulated;
pub mod subject;

pub use case::{Case, Chapter};
pub use known::{Known, Reported, known, reported};
pub use outcome::{Burst, Outcome, Pause, Recovery, Seen, Share, Verdict, What};
pub use parse::CaseError;
pub use run::{INBOX, Runner, SOURCE, SOURCE_SEED, TARGET};
pub use simulated::Simulated;
pub use subject::Subject;

macro_rules! embedded {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../cases/", $name, ".case"))),)*]
    };
}

/// Names and texts of the files of cases.
pub const FILES: &[(&str, &str)] = embedded!(
    "wire" "order" "send" "write" "read" "access" "window" "atomic" "flush" "shared" "rnr" "retry" "recovery" "fairness" "limits" "uc" "ud"
    "multicast" "congestion" "pause" "cm" "connected"
);

/// The cases that come with this crate.
#[must_use]
pub fn chapters() -> Vec<Chapter> {
    let parse = |&(name, text): &(&str, &str)| {
        Chapter::parse(name, text).unwrap_or_else(|error| unreachable!("a test reads it: {error}"))
    };
    FILES.iter().map(parse).collect()
}
