//! Conformance of an adapter to RoCEv2: cases and their runner.
//!
//! A [`Case`] is a text: connection of the device under test, packets to it, required responses;
//! see `docs/guide/cases.md`. A [`Runner`] plays the [`chapters`] against a [`Subject`]: this
//! project's adapter [in virtual time](Simulated), or a device on a network.

pub mod case;
mod dialog;
mod known;
mod outcome;
mod packet;
mod parse;
mod run;
mod simulated;
pub mod subject;
mod words;

pub use case::{Case, Chapter};
pub use known::{Known, Reported, known, reported};
pub use outcome::{Burst, Outcome, Pause, Recovery, Seen, Share, TraceEvent, Verdict};
pub use parse::CaseError;
pub use run::{INBOX, Runner, SOURCE, SOURCE_SEED, TARGET};
pub use simulated::Simulated;
pub use subject::Subject;

macro_rules! embedded {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../cases/", $name, ".case"))),)*]
    };
}

const FILES: &[(&str, &str)] = embedded!(
    "wire" "order" "send" "write" "read" "access" "window" "atomic" "flush" "shared" "rnr" "retry" "recovery" "fairness" "limits" "uc" "ud"
    "multicast" "congestion" "pause" "cm" "connected"
);

/// Cases of this crate.
#[must_use]
pub fn chapters() -> Vec<Chapter> {
    let parse = |(name, text): &(&str, &str)| Chapter::parse(name, text).expect("a test reads it");
    FILES.iter().map(parse).collect()
}
