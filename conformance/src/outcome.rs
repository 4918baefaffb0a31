//! Outcome of a case.

use std::{fmt, time::Duration};

use roce_transport::wire::NetHeader;

use crate::case::PauseFrames;

/// Verdict of a case on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// It does what the rule says.
    Conforms,
    /// The device, or its agent, has not what the case needs.
    NotSupported,
    /// The case could not be played to its end, or gave different verdicts when repeated.
    Inconclusive,
    /// It does otherwise.
    Deviates,
    /// It does otherwise, and that loses or exposes data, or stops it.
    Harmful,
}

impl Verdict {
    /// Every verdict, the best first.
    pub const ALL: [Self; 5] =
        [Self::Conforms, Self::NotSupported, Self::Inconclusive, Self::Deviates, Self::Harmful];

    /// Its name.
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

    /// The verdict of this name.
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
    /// The failure, and the number of the line that found it.
    pub finding: Option<(usize, String)>,
    /// The packets, in their order.
    pub packets: Vec<Seen>,
    /// The pauses that the case measures, in their order.
    pub pauses: Vec<Pause>,
    /// The bursts of which it notes the times, in their order.
    pub bursts: Vec<Burst>,
    /// How long it took.
    pub time: Duration,
}

/// The time before a packet that may not come before a pause is over (`expect … after TIME`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// The least that is right.
    pub least: Duration,
    /// Time from the end of the step before to the packet's arrival.
    pub measured: Duration,
}

/// A burst, as it came.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Burst {
    /// The least that is right from the first to the last.
    pub least: Duration,
    /// Time of each since the first one, and bytes of its payload. What is taken for lost, and what
    /// is dropped behind that, is noted when it comes again.
    pub packets: Vec<(Duration, usize)>,
    /// How the packets came again that the instrument took for lost, in the order of their places.
    pub recoveries: Vec<Recovery>,
    /// Share of one queue pair among several.
    pub share: Option<Share>,
}

/// Packets that a queue pair had sent when the first of several had sent all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Its packets.
    pub packets: u32,
    /// Packets of all queue pairs.
    pub of: u32,
}

/// How a packet came again that the instrument took for lost: of a burst, or of the responses to
/// READs, where it is asked for again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// Its place in the burst, from 0.
    pub lost: u32,
    /// NAKs by which the device was told of gaps, this one and those that it left behind it; 0: its
    /// timer found out. A requester of READs sees from the responses what is missing.
    pub naks: u32,
    /// Until it came again, from the first NAK, or without one from when it came first. Until a
    /// response was asked for again, from when the next one was sent, or of the last one from when
    /// it should have been. Zero if it was not asked for again.
    pub pause: Duration,
    /// Packets behind it that had come, and came again.
    pub again: u32,
}

impl Burst {
    /// From the first to the last.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.packets.last().map_or(Duration::ZERO, |(time, _)| *time)
    }

    /// Time from one to the next, on the average.
    pub(crate) fn of_each(&self) -> Duration {
        self.time() / (self.packets.len() as u32).saturating_sub(1).max(1)
    }
}

/// A packet that passed between instrument and device, or pause frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// When, from the start of the case.
    pub at: Duration,
    /// True if it is from the device.
    pub from_device: bool,
    /// Kind of event.
    pub what: What,
}

/// Exchange between instrument and device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A packet.
    Packet {
        /// Its network headers.
        net: NetHeader,
        /// UDP payload.
        bytes: Vec<u8>,
    },
    /// Pause frames, the first of which was sent at that time.
    Pause(PauseFrames),
}
