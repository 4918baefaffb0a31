//! Conformance of an adapter to RoCEv2: cases and their runner.
//!
//! A [`Case`] is a text: connection of the device under test, packets to it, required responses;
//! see `docs/guide/cases.md`. [`chapters`] returns this crate's cases, [`Chapter::parse`] reads
//! others. A [`Runner`] plays them against a [`Subject`]: this project's adapter [in virtual
//! time](Simulated), or a device on a network. Sockets, clocks and waits are the [`Subject`]'s.

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

/// Names and texts of case files.
pub const FILES: &[(&str, &str)] = embedded!(
    "wire" "order" "send" "write" "read" "access" "window" "atomic" "flush" "shared" "rnr" "retry" "recovery" "fairness" "limits" "uc" "ud"
    "multicast" "congestion" "pause" "cm" "connected"
);

/// Returns the cases of this crate.
#[must_use]
pub fn chapters() -> Vec<Chapter> {
    let parse = |&(name, text): &(&str, &str)| {
        Chapter::parse(name, text).unwrap_or_else(|error| unreachable!("a test reads it: {error}"))
    };
    FILES.iter().map(parse).collect()
}
