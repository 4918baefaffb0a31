use std::{fmt, time::Duration};

use roce_transport::wire::NetHeader;

/// Verdict on a device.
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
    /// Breaks the rule, and loses or exposes data or stops the device.
    Harmful,
}

impl Verdict {
    /// Best first.
    pub const ALL: [Self; 5] =
        [Self::Conforms, Self::NotSupported, Self::Inconclusive, Self::Deviates, Self::Harmful];

    /// Name.
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

    /// Verdict of this name.
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
    /// Verdict.
    pub verdict: Verdict,
    /// Line and failure.
    pub finding: Option<(usize, String)>,
    /// Packets in order.
    pub packets: Vec<Seen>,
    /// Measured pauses.
    pub pauses: Vec<Pause>,
    /// Timed bursts.
    pub bursts: Vec<Burst>,
    /// Duration.
    pub time: Duration,
}

/// Pause before a packet (`expect … after TIME`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Least allowed.
    pub least: Duration,
    /// Time from the end of the last step to the arrival.
    pub measured: Duration,
}

/// Received burst.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Burst {
    /// Least time, first to last.
    pub least: Duration,
    /// Time since the first packet, and payload bytes. Lost and dropped packets count when
    /// retransmitted.
    pub packets: Vec<(Duration, usize)>,
    /// Recoveries in order.
    pub recoveries: Vec<Recovery>,
    /// Share of a queue pair, if several.
    pub share: Option<Share>,
}

/// Packets that a queue pair had sent when the first finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Packets of the queue pair.
    pub packets: u32,
    /// Packets of all queue pairs.
    pub of: u32,
}

/// Recovery of a packet that the instrument took for lost, or of a READ response requested again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// Index from 0.
    pub lost: u32,
    /// NAKs about the gap and its consequences; 0: a timeout. A READ requester sees gaps in the
    /// responses.
    pub naks: u32,
    /// Time to the retransmission from the first NAK, else from the first arrival. READs: time to
    /// the new request from the next response, or from when the last was due; zero without a new
    /// request.
    pub pause: Duration,
    /// Packets retransmitted though received.
    pub again: u32,
}

impl Burst {
    /// Time from first to last.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.packets.last().map_or(Duration::ZERO, |(time, _)| *time)
    }

    pub(crate) fn of_each(&self) -> Duration {
        self.time() / (self.packets.len() as u32).saturating_sub(1).max(1)
    }
}

/// Packet or pause frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Time since the start.
    pub at: Duration,
    /// Sent by the device.
    pub from_device: bool,
    /// Event.
    pub what: TraceEvent,
}

/// Event between instrument and device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "an event's comment describes its fields")]
pub enum TraceEvent {
    /// Packet: network headers, and the UDP payload.
    Packet { net: NetHeader, bytes: Vec<u8> },
    /// Pause frames.
    Pause(PauseFrames),
}

/// PFC pause frames (IEEE 802.1Qbb).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseFrames {
    /// One bit each.
    pub priorities: u8,
    /// Duration of repeated longest pauses, whose length depends on the link's rate. `None`: one
    /// pause, which the device ends.
    pub time: Option<Duration>,
}

impl fmt::Display for PauseFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<_> = (0..8).filter(|at| self.priorities >> at & 1 == 1).collect();
        match &named[..] {
            [] => f.write_str("pause of no priority")?,
            [one] => write!(f, "pause of priority {one}")?,
            all if all.len() == 8 => f.write_str("pause of all priorities")?,
            some => {
                let some: Vec<_> = some.iter().map(ToString::to_string).collect();
                write!(f, "pause of priorities {}", some.join(", "))?;
            }
        }
        match self.time {
            Some(time) => write!(f, " for {time:?}"),
            None => f.write_str(", once"),
        }
    }
}
