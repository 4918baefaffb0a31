use std::{error::Error, fmt};

use roce_transport::{ids::Qpn, trace::Call, work::SendOp};
use roce_world::{Failure, Line, Node, SentDatagram, Viewer, World};
use serde::Serialize;

use crate::{rows, spec::Spec};

#[derive(Serialize)]
pub(crate) struct State {
    /// Nanoseconds from the start.
    at: u64,
    in_flight: usize,
    port: Port,
    nodes: Vec<EndState>,
}

#[derive(Serialize)]
struct Port {
    passed: u64,
    marked: u64,
    dropped: u64,
    longest: u64,
}

#[derive(Serialize)]
struct EndState {
    end: &'static str,
    address: String,
    queue_pairs: Vec<QueuePair>,
    memory: Vec<Memory>,
    /// Nonzero.
    counters: Vec<Counter>,
}

#[derive(Serialize)]
struct QueuePair {
    qpn: String,
    name: Option<String>,
    service: String,
    state: String,
    next: Vec<String>,
    peer: String,
    /// PSNs: next expected, next to send, oldest unacknowledged.
    expected_psn: u32,
    next_psn: u32,
    unacked_psn: u32,
    in_flight: u64,
    window: u64,
    /// Mbit/s; `None`: no limit.
    rate: Option<f64>,
    room: u32,
    requests: Vec<Request>,
}

#[derive(Serialize)]
struct Request {
    wr_id: u64,
    op: String,
    length: u32,
    psns: Option<(u32, u32)>,
}

#[derive(Serialize)]
struct Memory {
    address: u64,
    lkey: u32,
    rkey: u32,
    hex: String,
}

#[derive(Serialize)]
struct Counter {
    name: &'static str,
    explanation: &'static str,
    value: u64,
}

/// Stops after so many lines.
pub(crate) struct Until<F> {
    left: usize,
    each: F,
}

#[derive(Debug)]
struct Enough;

impl fmt::Display for Enough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the viewer has seen enough")
    }
}

impl Error for Enough {}

impl<F: FnMut(&SentDatagram<'_>) -> Result<(), Failure>> Until<F> {
    /// `each` gets every datagram.
    pub(crate) const fn new(lines: usize, each: F) -> Self {
        Self { left: lines, each }
    }

    fn check(&self) -> Result<(), Failure> {
        if self.left == 0 { Err(Enough.into()) } else { Ok(()) }
    }
}

impl<F: FnMut(&SentDatagram<'_>) -> Result<(), Failure>> Viewer for Until<F> {
    fn say(&mut self, _text: &str) -> Result<(), Failure> {
        self.check()
    }

    fn figures(&mut self, _text: &str) -> Result<(), Failure> {
        self.check()
    }

    fn line(&mut self, _line: Line) -> Result<(), Failure> {
        // Later lines of an adapter call belong to it.
        self.left = self.left.saturating_sub(1);
        self.check()
    }

    fn datagram(&mut self, datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        (self.each)(datagram)
    }
}

pub(crate) fn play_to_end(spec: &Spec, viewer: &mut dyn Viewer) -> Result<(), String> {
    // The viewer knows the end, or the lines show it.
    spec.play(viewer).map(|_| ())
}

pub(crate) fn after(spec: &Spec, lines: usize) -> Result<State, String> {
    let mut until = Until::new(lines, |_: &SentDatagram<'_>| Ok(()));
    let (world, _) = spec.play(&mut until)?;
    let port = world.port();
    Ok(State {
        at: rows::nanos(world.time()),
        in_flight: world.in_flight(),
        port: Port {
            passed: port.passed,
            marked: port.marked,
            dropped: port.dropped,
            longest: port.longest,
        },
        nodes: world.nodes().iter().map(|node| end(&world, node)).collect(),
    })
}

fn end(world: &World<'_>, node: &Node) -> EndState {
    let counters = node.adapter().counters().iter().filter(|counter| counter.value > 0);
    let counters = counters.map(|counter| Counter {
        name: counter.name,
        explanation: counter.explanation,
        value: counter.value,
    });
    let memory = node.buffers().iter().map(|buffer| Memory {
        address: buffer.region().address(),
        lkey: buffer.region().lkey().0,
        rkey: buffer.region().rkey().0,
        hex: hex(&buffer.bytes()),
    });
    let queue_pairs = node.queue_pairs().iter();
    EndState {
        end: rows::letter(node.end()),
        address: node.address().to_string(),
        queue_pairs: queue_pairs.filter_map(|qpn| queue_pair(world, node, *qpn)).collect(),
        memory: memory.collect(),
        counters: counters.collect(),
    }
}

fn queue_pair(world: &World<'_>, node: &Node, qpn: Qpn) -> Option<QueuePair> {
    let info = node.adapter().query_qp(qpn)?;
    let sends = node.adapter().query_send_queue(qpn)?;
    let next = roce_transport::qp::State::ALL.iter();
    let next = next.filter(|to| {
        **to != info.state && roce_transport::qp::is_legal(info.qp_type, info.state, **to)
    });
    Some(QueuePair {
        qpn: qpn.to_string(),
        name: world.name_of(qpn).map(str::to_owned),
        service: info.qp_type.to_string(),
        state: info.state.to_string(),
        next: next.map(ToString::to_string).collect(),
        peer: info.dest_qpn.to_string(),
        expected_psn: info.rq_psn.get(),
        next_psn: info.sq_psn.get(),
        unacked_psn: sends.oldest_unacked.get(),
        in_flight: sends.in_flight,
        window: info.window,
        rate: info.rate.map(|bits| bits as f64 / 1e6),
        room: info.caps.max_send_wr,
        requests: sends
            .requests
            .iter()
            .map(|request| Request {
                wr_id: request.wr_id,
                op: operation(request.op),
                length: request.length,
                psns: request.psns.map(|(first, last)| (first.get(), last.get())),
            })
            .collect(),
    })
}

/// The specification's name, as in the record.
fn operation(op: SendOp) -> String {
    let call = Call::PostSend { wr_id: 0, op, length: 0, flags: Default::default() }.to_string();
    let name = call.strip_prefix("post_send 0: ").and_then(|rest| rest.strip_suffix(" of 0 B"));
    name.unwrap_or(&call).to_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
