//! The ladder: every packet between two adapters, and what became of it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use roce::{
    Qpn,
    link::{Direction, Observed, Observer},
    transport::{
        cm::{CmMad, Message, PortSpace},
        wire::{Ext, Packet, Syndrome},
    },
};

/// A packet between the two adapters.
struct Rung {
    at: Duration,
    from: char,
    bytes: Vec<u8>,
    /// What the receiver made of it; none while it has not arrived.
    outcome: Option<String>,
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
}

impl Watcher {
    pub(super) const fn new(name: char, ladder: Arc<Mutex<Ladder>>) -> Self {
        Self { name, ladder }
    }
}

impl Observer for Watcher {
    fn observe(&mut self, observed: &Observed<'_>) {
        let mut ladder = self.ladder.lock().unwrap_or_else(PoisonError::into_inner);
        match observed.direction {
            Direction::Sent => {
                ladder.rungs.push(Rung {
                    at: observed.at,
                    from: self.name,
                    bytes: observed.bytes.to_vec(),
                    outcome: None,
                });
            }
            Direction::Received => {
                let arrived = |rung: &&mut Rung| {
                    rung.from != self.name && rung.outcome.is_none() && rung.bytes == observed.bytes
                };
                // a packet sent again has the same bytes: the latest is the one that arrives, since
                // the earlier was lost
                if let Some(rung) = ladder.rungs.iter_mut().rev().find(arrived) {
                    rung.outcome = observed.disposition.map(|disposition| disposition.to_string());
                }
            }
        }
    }
}

/// Prints a step's packets and forgets them.
pub(super) fn print(ladder: &Mutex<Ladder>, title: &str) {
    let rungs = std::mem::take(&mut ladder.lock().unwrap_or_else(PoisonError::into_inner).rungs);
    println!("\n{title}");
    let start = rungs.first().map(|rung| rung.at).unwrap_or_default();
    for rung in &rungs {
        let Ok(packet) = Packet::parse(&rung.bytes) else { continue };
        let bth = packet.headers.bth();
        let arrow = if rung.from == 'A' { "A ──▶ B" } else { "A ◀── B" };
        let arrow = if rung.outcome.is_none() {
            arrow.replace(['▶', '◀'], "✗")
        } else {
            arrow.into()
        };
        let mad = CmMad::parse(packet.payload).ok().filter(|_| bth.dest_qp == Qpn::GSI);
        let (name, details) = match &mad {
            Some(mad) => (format!("CM {}", mad.message.name()), said(&mad.message)),
            None => (bth.opcode.to_string(), details(&packet)),
        };
        println!(
            "  {:>7.1} µs  {arrow}  {:<32} qp {}  psn {:>8}  {:<24} {}",
            (rung.at - start).as_nanos() as f64 / 1e3,
            name,
            bth.dest_qp,
            bth.psn.to_string(),
            details,
            rung.outcome.as_deref().unwrap_or("LOST"),
        );
    }
}

/// What a message of connection management says, shortly.
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
        Message::Mra(_) => "takes longer".into(),
    }
}

/// What the extended headers say, shortly.
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
