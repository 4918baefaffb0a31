//! Outcome of a case.

use std::{fmt, time::Duration};

use roce_transport::wire::NetHeader;

use crate::case::PauseFrames;

/// Verdict of a case on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Obeys the rule.
    Conforms,
    /// The device or its agent lacks a feature.
    NotSupported,
    /// Not played to the end, or different verdicts when repeated.
    Inconclusive,
    /// Breaks the rule.
    Deviates,
    /// Breaks the rule; that loses or exposes data, or stops the device.
    Harmful,
}

impl Verdict {
    /// All verdicts, best first.
    pub const ALL: [Self; 5] =
        [Self::Conforms, Self::NotSupported, Self::Inconclusive, Self::Deviates, Self::Harmful];

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conforms => "conforms",
            Self::NotSupported => "not supported",
            Self::Inconclusive => "inconclusive",
            Self::Deviates => "deviates",
            Self::Harmful => "harmful",
        }
    }

    /// Returns the verdict with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Outcome of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The failure and its line.
    pub finding: Option<(usize, String)>,
    /// Packets in order.
    pub packets: Vec<Seen>,
    /// Measured pauses in order.
    pub pauses: Vec<Pause>,
    /// Timed bursts in order.
    pub bursts: Vec<Burst>,
    /// Duration.
    pub time: Duration,
}

/// A pause before a packet (`expect … after TIME`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Least allowed.
    pub least: Duration,
    /// From the end of the step before to the packet's arrival.
    pub measured: Duration,
}

/// A received burst.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Burst {
    /// Least allowed time, first to last.
    pub least: Duration,
    /// Time since the first packet, and payload bytes. Lost packets and later drops count when
    /// retransmitted.
    pub packets: Vec<(Duration, usize)>,
    /// Recoveries of lost packets, in order.
    pub recoveries: Vec<Recovery>,
    /// Share of one queue pair, if several.
    pub share: Option<Share>,
}

/// Packets that a queue pair had sent when the first had finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Its packets.
    pub packets: u32,
    /// Packets of all queue pairs.
    pub of: u32,
}

/// Recovery of a packet that the instrument took for lost: a burst packet, or a READ response that
/// is requested again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// Index in the burst, from 0.
    pub lost: u32,
    /// NAKs about this gap and those it caused; 0: a timeout. READ requesters see gaps in the
    /// responses.
    pub naks: u32,
    /// Time to the retransmission from the first NAK, else from the first arrival. For READs, to
    /// the new request, from the next response, or from when the last was due; zero without a new
    /// request.
    pub pause: Duration,
    /// Later packets retransmitted though received.
    pub again: u32,
}

impl Burst {
    /// Returns the time from first to last.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.packets.last().map_or(Duration::ZERO, |(time, _)| *time)
    }

    /// Average interval.
    pub(crate) fn of_each(&self) -> Duration {
        self.time() / (self.packets.len() as u32).saturating_sub(1).max(1)
    }
}

/// A packet between instrument and device, or pause frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Time from the start of the case.
    pub at: Duration,
    /// True if the device sent it.
    pub from_device: bool,
    /// Kind of event.
    pub what: What,
}

/// Traffic between instrument and device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A packet.
    Packet {
        /// Its network headers.
        net: NetHeader,
        /// UDP payload.
        bytes: Vec<u8>,
    },
    /// Pause frames, the first sent at that time.
    Pause(PauseFrames),
}
