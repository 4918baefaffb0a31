//! The ladder: every packet between two adapters, and what became of it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use roce::{
    Qpn,
    fabric::{Direction, FaultPlan, Faults},
    link::{Observed, Observer},
    transport::{
        cm::{CmMad, Message, PortSpace},
        time,
        wire::{Ext, Packet, Syndrome},
    },
};

use crate::output::outln;

/// Longest time for which the last packets of a step may be on their way.
const ARRIVAL: Duration = Duration::from_secs(2);

/// A packet between the two adapters.
struct Rung {
    at: Duration,
    from: char,
    bytes: Vec<u8>,
    outcome: Outcome,
}

enum Outcome {
    /// Sent; it has not arrived yet.
    OnItsWay,
    /// Lost by the faults that were asked for.
    Lost,
    /// Arrived: the receiver's disposition.
    Arrived(String),
}

/// The packets of one step.
#[derive(Default)]
pub(super) struct Ladder {
    rungs: Vec<Rung>,
}

/// Fills a ladder from one adapter's side.
pub(super) struct Watcher {
    name: char,
    ladder: Arc<Mutex<Ladder>>,
    /// The faults in front of the adapter's link. The same datagrams in the same order have the
    /// same fate here as there.
    faults: Faults,
}

impl Watcher {
    /// A watcher of the adapter `name`, which sends with these faults.
    pub(super) fn new(name: char, ladder: Arc<Mutex<Ladder>>, faults: &FaultPlan) -> Self {
        Self { name, ladder, faults: Faults::new(faults.toward(Direction::Sent), 0) }
    }
}

impl Observer for Watcher {
    fn observe(&mut self, observed: &Observed<'_>) {
        let mut ladder = self.ladder.lock().unwrap_or_else(PoisonError::into_inner);
        match observed.direction {
            Direction::Sent => {
                let now = time::Instant::from_nanos(observed.at.as_nanos() as u64);
                let lost = self.faults.judge(now, observed.net, observed.bytes).lost;
                ladder.rungs.push(Rung {
                    at: observed.at,
                    from: self.name,
                    bytes: observed.bytes.to_vec(),
                    outcome: if lost { Outcome::Lost } else { Outcome::OnItsWay },
                });
            }
            Direction::Received => {
                // a packet sent again has the same bytes; the link keeps the order
                let arrived = |rung: &&mut Rung| {
                    rung.from != self.name
                        && matches!(rung.outcome, Outcome::OnItsWay)
                        && rung.bytes == observed.bytes
                };
                if let (Some(rung), Some(disposition)) =
                    (ladder.rungs.iter_mut().find(arrived), observed.disposition)
                {
                    rung.outcome = Outcome::Arrived(disposition.to_string());
                }
            }
        }
    }
}

/// Prints a step's packets and forgets them.
pub(super) fn print(ladder: &Mutex<Ladder>, title: &str) {
    let rungs = settled(ladder);
    outln!("\n{title}");
    let start = rungs.first().map(|rung| rung.at).unwrap_or_default();
    for rung in &rungs {
        let Ok(packet) = Packet::parse(&rung.bytes) else { continue };
        let bth = packet.headers.bth();
        let arrow = if rung.from == 'A' { "A ──▶ B" } else { "A ◀── B" };
        let (arrow, outcome) = match &rung.outcome {
            Outcome::OnItsWay => (arrow.to_owned(), "on its way"),
            Outcome::Lost => (arrow.replace(['▶', '◀'], "✗"), "LOST"),
            Outcome::Arrived(disposition) => (arrow.to_owned(), disposition.as_str()),
        };
        let mad = CmMad::parse(packet.payload).ok().filter(|_| bth.dest_qp == Qpn::GSI);
        let (name, details) = match &mad {
            Some(mad) => (format!("CM {}", mad.message.name()), said(&mad.message)),
            None => (bth.opcode.to_string(), details(&packet)),
        };
        outln!(
            "  {:>7.1} µs  {arrow}  {:<32} qp {}  psn {:>8}  {:<24} {}",
            (rung.at - start).as_nanos() as f64 / 1e3,
            name,
            bth.dest_qp,
            bth.psn.to_string(),
            details,
            outcome,
        );
    }
}

/// The step's packets, once none is on its way any more; on a busy host the last may take a while.
fn settled(ladder: &Mutex<Ladder>) -> Vec<Rung> {
    let start = Instant::now();
    loop {
        let mut ladder = ladder.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |rung: &Rung| matches!(rung.outcome, Outcome::OnItsWay);
        if start.elapsed() > ARRIVAL || !ladder.rungs.iter().any(is_open) {
            return std::mem::take(&mut ladder.rungs);
        }
        drop(ladder);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Short text of a message of connection management.
fn said(message: &Message) -> String {
    match message {
        Message::Req(req) => match PortSpace::of(req.service_id) {
            Some((_, port)) => format!("port {port}? my qp {}", req.local_qpn),
            None => format!("{:?}? my qp {}", req.service_id, req.local_qpn),
        },
        Message::Rep(rep) => format!("yes, my qp {}", rep.local_qpn),
        Message::Rej(rej) => rej.reason.to_string(),
        Message::Rtu(_) => "ready to use".into(),
        Message::Dreq(_) => "the end".into(),
        Message::Drep(_) => "agreed".into(),
        Message::SidrReq(_) => "who serves this?".into(),
        Message::SidrRep(rep) => format!("status {}, qp {}", rep.status, rep.qpn),
        Message::Lap(_) => "another path?".into(),
        Message::Apr(apr) => format!("status {}", apr.status),
        Message::Mra(_) => "takes longer".into(),
    }
}

/// Short text of the extended headers.
fn details(packet: &Packet<'_>) -> String {
    let mut parts = Vec::new();
    match packet.headers.ext() {
        Ext::Reth(reth) if packet.payload.is_empty() => {
            parts.push(format!("asks for {} B", reth.dma_length));
        }
        Ext::Aeth(aeth) => match aeth.syndrome {
            Syndrome::Ack { .. } => parts.push(format!("ACK msn {}", aeth.msn.get())),
            other => parts.push(other.to_string()),
        },
        _ => {}
    }
    if !packet.payload.is_empty() {
        parts.push(format!("{} B", packet.payload.len()));
    }
    if packet.headers.bth().ack_req {
        parts.push("ack?".into());
    }
    parts.join(", ")
}
