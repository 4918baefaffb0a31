use std::{
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter},
    path::Path,
    time::Duration,
};

use roce_capture::CaptureWriter;
use roce_fabric::Verdict;
use roce_transport::{
    event::Disposition,
    time::Instant,
    wire::{Headers, NetHeader, Operation, Packet},
};

use super::node::Side;

pub struct Rung {
    pub time: Instant,
    pub from: Side,
    pub net: NetHeader,
    pub bytes: Vec<u8>,
    pub headers: Headers,
    pub payload: usize,
    pub verdict: Verdict,
    /// None if lost, two if duplicated.
    pub arrivals: Vec<(Instant, Disposition)>,
}

impl Rung {
    pub fn new(time: Instant, from: Side, net: NetHeader, bytes: &[u8], verdict: Verdict) -> Self {
        let packet = Packet::parse(bytes).expect("an adapter sent something that is no packet");
        let (headers, payload) = (packet.headers, packet.payload.len());
        Self {
            time,
            from,
            net,
            bytes: bytes.to_vec(),
            headers,
            payload,
            verdict,
            arrivals: Vec::new(),
        }
    }

    pub fn operation(&self) -> Operation {
        self.headers.bth().opcode.operation()
    }

    pub fn psn(&self) -> u32 {
        self.headers.bth().psn.get()
    }

    fn fate(&self) -> String {
        let mut fate = String::new();
        if self.verdict.lost {
            fate.push_str("LOST");
        } else if self.arrivals.is_empty() {
            fate.push_str("has not arrived");
        }
        if self.verdict.corruption.is_some() {
            fate.push_str("corrupted; ");
        }
        for (i, (at, disposition)) in self.arrivals.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; again" };
            let _ = write!(fate, "{separator} at {:.1}: {disposition}", micros(*at));
        }
        fate
    }

    fn summary(&self) -> String {
        let bth = self.headers.bth();
        let mut line = format!("{} psn {:#x}", bth.opcode, bth.psn.get());
        if bth.ack_req {
            line.push_str(" A");
        }
        if bth.solicited {
            line.push_str(" S");
        }
        if let Some(xrceth) = self.headers.xrceth() {
            let _ = write!(line, " srq {:#08x}", xrceth.srq.get());
        }
        if let Some(aeth) = self.headers.ext().aeth() {
            let _ = write!(line, " {} msn {}", aeth.syndrome, aeth.msn.get());
        }
        if let Some(reth) = self.headers.ext().reth() {
            let _ = write!(line, " {:#x}+{}", reth.virtual_address, reth.dma_length);
        }
        if self.payload > 0 {
            let _ = write!(line, " [{}]", self.payload);
        }
        line
    }
}

fn micros(time: Instant) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[derive(Default)]
pub struct Trace {
    pub records: Vec<Rung>,
    /// Keeps no records.
    pub off: bool,
}

impl Trace {
    pub fn from(&self, side: Side) -> impl Iterator<Item = &Rung> {
        self.records.iter().filter(move |record| record.from == side)
    }

    pub fn operations(&self, side: Side) -> Vec<Operation> {
        self.from(side).map(Rung::operation).collect()
    }

    pub fn psns(&self, side: Side) -> Vec<u32> {
        self.from(side).map(Rung::psn).collect()
    }

    pub fn count(&self, side: Side, operation: Operation) -> usize {
        self.from(side).filter(|record| record.operation() == operation).count()
    }

    /// A line per packet, the last 400.
    pub fn ladder(&self) -> String {
        let skip = self.records.len().saturating_sub(400);
        let mut text = if skip > 0 { format!("({skip} packets before)\n") } else { String::new() };
        for record in &self.records[skip..] {
            let arrow = match record.from {
                Side::A => "A --> B",
                Side::B => "A <-- B",
            };
            let summary = record.summary();
            let _ = writeln!(
                text,
                "{:>12.1} µs  {arrow}  {summary:<64} {}",
                micros(record.time),
                record.fate()
            );
        }
        text
    }

    /// With a comment per packet.
    pub fn write_pcapng(&self, path: &Path) -> io::Result<()> {
        let mut capture = CaptureWriter::new(BufWriter::new(File::create(path)?))?;
        for record in &self.records {
            let at = Duration::from_nanos(record.time.as_nanos());
            capture.write(at, &record.net, &record.bytes, Some(record.fate()))?;
        }
        Ok(())
    }
}
