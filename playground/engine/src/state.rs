use roce_transport::{
    ids::Qpn,
    qp::{State, is_legal},
    trace::Call,
    work::SendOp,
};
use roce_world::{Failure, Line, Node, SentDatagram, Viewer, World};
use serde_json::{Value, json};

use crate::{rows, spec::Spec};

/// Stops after so many lines.
pub(crate) struct Until<F> {
    left: usize,
    each: F,
}

impl<F: FnMut(&SentDatagram<'_>) -> Result<(), Failure>> Until<F> {
    /// `each` gets every datagram.
    pub(crate) const fn new(lines: usize, each: F) -> Self {
        Self { left: lines, each }
    }

    fn check(&self) -> Result<(), Failure> {
        if self.left == 0 { Err("the viewer has seen enough".into()) } else { Ok(()) }
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

/// `State` of the page's `engine.ts`.
pub(crate) fn after(spec: &Spec, lines: usize) -> Result<Value, String> {
    let mut until = Until::new(lines, |_: &SentDatagram<'_>| Ok(()));
    let (world, _) = spec.play(&mut until)?;
    let port = world.network.port(None);
    Ok(json!({
        "at": rows::nanos(world.time()),
        "in_flight": world.network.in_flight(),
        "port": {
            "passed": port.passed, "marked": port.marked,
            "dropped": port.dropped, "longest": port.longest,
        },
        "nodes": world.nodes.iter().map(|node| end(&world, node)).collect::<Value>(),
    }))
}

fn end(world: &World<'_>, node: &Node) -> Value {
    let counters = node.adapter.counters().iter().filter(|counter| counter.value > 0);
    let counters = counters
        .map(|it| json!({"name": it.name, "explanation": it.explanation, "value": it.value}));
    let memory = node.buffers.iter().map(|buffer| {
        let region = &buffer.region;
        json!({
            "address": region.address(), "lkey": region.lkey().0, "rkey": region.rkey().0,
            "hex": hex(&buffer.bytes()),
        })
    });
    let queue_pairs = node.queue_pairs.iter();
    json!({
        "end": rows::letter(node.end),
        "address": node.ip.to_string(),
        "queue_pairs": queue_pairs
            .filter_map(|qpn| queue_pair(world, node, *qpn))
            .collect::<Value>(),
        "memory": memory.collect::<Value>(),
        "counters": counters.collect::<Value>(),
    })
}

fn queue_pair(world: &World<'_>, node: &Node, qpn: Qpn) -> Option<Value> {
    let info = node.adapter.query_qp(qpn)?;
    let sends = node.adapter.query_send_queue(qpn)?;
    let is_next = |to: &&State| **to != info.state && is_legal(info.qp_type, info.state, **to);
    let requests = sends.requests.iter().map(|it| {
        let psns = it.psns.map(|(first, last)| (first.get(), last.get()));
        json!({"wr_id": it.wr_id, "op": operation(it.op), "length": it.length, "psns": psns})
    });
    Some(json!({
        "qpn": qpn.to_string(),
        "name": world.name_of(qpn),
        "service": info.qp_type.to_string(),
        "state": info.state.to_string(),
        "next": State::ALL.iter().filter(is_next).map(ToString::to_string).collect::<Value>(),
        "peer": info.dest_qpn.to_string(),
        "expected_psn": info.rq_psn.get(),
        "next_psn": info.sq_psn.get(),
        "unacked_psn": sends.oldest_unacked.get(),
        "in_flight": sends.in_flight,
        "window": info.window,
        "rate": info.rate.map(|bits| bits as f64 / 1e6),
        "room": info.caps.max_send_wr,
        "requests": requests.collect::<Value>(),
    }))
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
