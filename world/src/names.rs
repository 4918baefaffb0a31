use std::collections::BTreeMap;

use roce_transport::{
    addr::Qpn,
    cm::MadReason,
    event::Disposition,
    trace::{Failure, PacketRecord, Reason, Record, Recovery, What, Why, WindowCause},
    wire::Syndrome,
};

use crate::{
    line::{Direction, End, Event, Tone},
    packet_text,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    Nothing,
    /// Packets, calls, completions, timers, losses, failures.
    Packets,
    /// `Packets`, and state changes by the program.
    States,
    Congestion,
}

#[derive(Debug, Default)]
pub(crate) struct Names(pub(crate) BTreeMap<Qpn, String>);

impl Names {
    /// A packet takes `way`.
    pub(crate) fn event(
        &self,
        shown: Shown,
        end: End,
        way: Direction,
        record: &Record,
    ) -> Option<(Event, Tone)> {
        let note = |tone| Some((Event::Note(end, self.note(record)), tone));
        let is_shown = match shown {
            Shown::Nothing => false,
            Shown::Packets => !matches!(&record.what, What::State { failure: Failure::Asked, .. }),
            Shown::States => true,
            Shown::Congestion => is_congestion(&record.what),
        };
        if !is_shown {
            return None;
        }
        match &record.what {
            What::Sent { packet, why } => {
                let tone = match why {
                    Why::Queue(Reason::Retransmit(..) | Reason::Probe { .. }) => Tone::Warned,
                    Why::Queue(Reason::Negative(..)) => Tone::Bad,
                    _ => Tone::Plain,
                };
                let why = match why {
                    // the packet says as much
                    Why::Cm(MadReason::First) | Why::Queue(Reason::Congestion) => String::new(),
                    _ => why.to_string(),
                };
                Some((Event::Sent(way, self.packet(packet), why), tone))
            }
            What::Arrived { packet, disposition } => {
                let tone = match disposition {
                    Disposition::Dropped(_)
                    | Disposition::Refused(..)
                    | Disposition::NakReceived(Syndrome::Nak(_) | Syndrome::RnrNak { .. }) => {
                        Tone::Bad
                    }
                    Disposition::Duplicate => Tone::Warned,
                    _ => Tone::Plain,
                };
                Some((Event::Arrived(way, self.packet(packet), disposition.to_string()), tone))
            }
            What::Call { result: Err(_), .. }
            | What::Completed { result: Err(_), .. }
            | What::Recovery { recovery: Recovery::GiveUp { .. }, .. } => note(Tone::Bad),
            What::Call { .. } | What::Completed { .. } => note(Tone::Strong),
            What::State { failure: Failure::Asked, .. } => note(Tone::Faint),
            What::State { .. } => note(Tone::Bad),
            What::Window { cause: WindowCause::Acknowledged | WindowCause::Start, .. } => None,
            // The arrival shows it.
            What::Acknowledged { .. } => None,
            What::Recovery { .. } | What::Timer(_) | What::Window { .. } | What::Rate { .. } => {
                note(Tone::Warned)
            }
            _ => note(Tone::Plain),
        }
    }

    fn note(&self, record: &Record) -> String {
        match self.0.get(&record.qpn) {
            Some(name) => format!("{name}: {}", record.what),
            None => record.what.to_string(),
        }
    }

    pub(crate) fn packet(&self, packet: &PacketRecord) -> String {
        let mad = packet.message.as_deref();
        let text = packet_text::packet(&packet.headers, packet.payload as usize, mad);
        match self.0.get(&packet.headers.bth().dest_qp) {
            Some(name) => format!("{text} to {name}"),
            None => text,
        }
    }
}

fn is_congestion(what: &What) -> bool {
    match what {
        What::Sent { why, .. } => *why == Why::Queue(Reason::Congestion),
        What::Arrived { disposition, .. } => *disposition == Disposition::Congestion,
        What::Window { cause, .. } => *cause == WindowCause::Notification,
        What::Rate { from: None, .. } | What::Rate { to: None, .. } => true,
        What::Rate { from: Some(from), to: Some(to) } => to < from,
        What::Recovery { .. } => true,
        _ => false,
    }
}
