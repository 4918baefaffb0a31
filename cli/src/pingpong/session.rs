use std::time::{Duration, Instant};

use roce::{
    Access, CompletionChannel, CompletionQueue, Context, MemoryRegion, NotifyKind, QpInitAttr,
    QpType, QueuePair, RecvWr, SendWr, SharedReceiveQueue, SrqAttr, SrqId, UdDestination, Wc,
    WcOpcode,
};

use super::plan::Plan;
use crate::{
    common::caps,
    failure::{Failure, fail},
};

const GRH: usize = 40;
/// The stock tools check only the first byte of each page; it must be zero.
const PAGE: usize = 4096;
/// A silent peer counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Session {
    pub(super) pairs: Vec<QueuePair>,
    pub(super) target: Option<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    buffers: Buffers,
    iters: u32,
    rx_depth: u32,
    begins: bool,
    pub(super) destination: Option<UdDestination>,
    pub(super) remote_srq: Option<SrqId>,
}

/// The side that does not begin echoes.
struct Buffers {
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
    start: usize,
    size: usize,
    validate: bool,
    /// Content of every message; the echoing side learns it from the first.
    expected: Option<Vec<u8>>,
}

impl Session {
    pub(super) fn new(context: &Context, plan: &Plan, is_client: bool) -> Result<Self, Failure> {
        let &Plan { qp_type, num_qp, shared, size, iters, rx_depth, validate, events, .. } = plan;
        let is_xrc = qp_type == QpType::XrcInitiator;
        // As in the stock tools, the XRC server begins.
        let begins = is_client != is_xrc;
        let start = if qp_type == QpType::Ud { GRH } else { 0 };
        let pd = context.alloc_pd()?;
        let incoming = pd.allocate(start + size, Access::LOCAL_WRITE)?;
        let outgoing = pd.allocate(size, Access::empty())?;
        let expected = begins.then(|| pattern(size));
        if let Some(pattern) = &expected {
            outgoing.write_at(0, pattern)?;
        }
        let channel = if events { Some(context.create_channel()?) } else { None };
        let cq = context.create_cq(rx_depth as usize + num_qp, channel.as_ref())?;
        let srq_attr = SrqAttr { max_wr: rx_depth, max_sge: 1 };
        let mut srq = if shared { Some(pd.create_srq(srq_attr)?) } else { None };
        let (mut target, caps) = (None, caps(1, rx_depth));
        let attr = QpInitAttr { caps, srq: srq.clone(), ..QpInitAttr::new(qp_type, &cq) };
        let mut pairs = Vec::new();
        for _ in 0..num_qp {
            let qp = pd.create_qp(&attr)?;
            qp.to_init(Plan::init())?;
            pairs.push(qp);
        }
        if is_xrc {
            let xrcd = context.open_xrcd()?;
            srq = Some(pd.create_xrc_srq(srq_attr, &xrcd, &cq)?);
            let qp = xrcd.create_target()?;
            qp.to_init(Plan::init())?;
            target = Some(qp);
        }
        let session = Self {
            pairs,
            target,
            srq,
            cq,
            channel,
            buffers: Buffers { outgoing, incoming, start, size, validate, expected },
            iters,
            rx_depth,
            begins,
            destination: None,
            remote_srq: None,
        };
        session.post_receives(rx_depth)?;
        if session.channel.is_some() {
            session.cq.req_notify(NotifyKind::Next);
        }
        Ok(session)
    }

    pub(super) fn srq_number(&self) -> Option<SrqId> {
        self.srq.as_ref().and_then(SharedReceiveQueue::number)
    }

    fn post_receives(&self, count: u32) -> Result<(), Failure> {
        let wrs = vec![RecvWr::new(0, [self.buffers.incoming.sge_all()]); count as usize];
        match &self.srq {
            Some(srq) => srq.post_recv(&wrs)?,
            None => self.pairs[0].post_recv(&wrs)?,
        }
        Ok(())
    }

    fn post_send(&self, index: usize) -> Result<(), Failure> {
        let Buffers { outgoing, incoming, start, size, .. } = &self.buffers;
        let data =
            if self.begins { outgoing.sge_all() } else { incoming.sge(*start..start + size) };
        let wr = match self.destination {
            Some(to) => SendWr::send_to(0, to, data),
            None => SendWr { remote_srq: self.remote_srq, ..SendWr::send(0, data) },
        };
        Ok(self.pairs[index].post_send(&[wr])?)
    }

    /// Each queue pair waits for its send and the reply.
    pub(super) fn play(&mut self) -> Result<(), Failure> {
        let (mut sent, mut received) = (0, 0);
        let mut posted = self.rx_depth;
        let mut pending = vec![Pending { send: self.begins, receive: true }; self.pairs.len()];
        if self.begins {
            (0..self.pairs.len()).try_for_each(|index| self.post_send(index))?;
        }
        let mut listen_grace = Instant::now();
        while sent < self.iters || received < self.iters {
            let Some(wc) = self.next_completion(listen_grace)? else { continue };
            listen_grace = Instant::now();
            let ok = wc.result.map_err(|error| {
                format!("after {sent} messages sent and {received} received: {error}")
            })?;
            // one target, one initiator
            let of = |qp: &QueuePair| qp.qpn() == wc.qpn;
            let index = if self.target.as_ref().is_some_and(of) {
                Some(0)
            } else {
                self.pairs.iter().position(of)
            };
            let Some(index) = index else { continue };
            if ok.opcode == WcOpcode::Recv {
                received += 1;
                pending[index].receive = false;
                self.buffers.check(ok.byte_len as usize, received)?;
                if self.begins && self.pairs.len() == 1 {
                    // This message must not pass for the next.
                    self.buffers.clear()?;
                }
                posted -= 1;
                if posted <= self.pairs.len() as u32 {
                    self.post_receives(self.rx_depth - posted)?;
                    posted = self.rx_depth;
                }
            } else {
                sent += 1;
                pending[index].send = false;
            }
            if pending[index] == Pending::default() && sent < self.iters {
                pending[index] = Pending { send: true, receive: true };
                self.post_send(index)?;
            }
        }
        Ok(())
    }

    fn next_completion(&self, since: Instant) -> Result<Option<Wc>, Failure> {
        let wc = match (&self.channel, self.cq.poll_one()) {
            (_, Some(wc)) => Some(wc),
            (None, None) => None,
            (Some(channel), None) => {
                let left = PATIENCE.saturating_sub(since.elapsed());
                // Arming before a completion is found may leave an event, which is harmless.
                let _ = channel.wait(Some(left));
                self.cq.req_notify(NotifyKind::Next);
                self.cq.poll_one()
            }
        };
        if wc.is_none() && since.elapsed() > PATIENCE {
            fail!(
                "nothing received from the peer for {} s; check that it still runs",
                PATIENCE.as_secs()
            );
        }
        Ok(wc)
    }
}

impl Buffers {
    fn check(&mut self, length: usize, number: u32) -> Result<(), Failure> {
        if !self.validate {
            return Ok(());
        }
        let size = length - self.start;
        if size != self.size {
            fail!(
                "message {number} has {size} bytes, expected {}; use the same -s on both sides",
                self.size
            );
        }
        let message = self.incoming.to_vec(self.start..length)?;
        let expected = self.expected.get_or_insert_with(|| {
            // this tool's pattern, or a stock tool's
            let stock = STOCK_FILLS
                .map(|fill| stock_pattern(size, fill))
                .into_iter()
                .find(|stock| *stock == message);
            stock.unwrap_or_else(|| pattern(size))
        });
        if let Some(at) = (0..size).find(|&at| message[at] != expected[at]) {
            let (got, wanted) = (message[at], expected[at]);
            fail!(
                "invalid data in message {number}: byte {at} is {got:#04x}, expected {wanted:#04x}"
            );
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Failure> {
        if self.validate { Ok(self.incoming.fill(0)?) } else { Ok(()) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Pending {
    send: bool,
    receive: bool,
}

/// Bytes depend on the offset; pages begin with zero for stock servers.
fn pattern(size: usize) -> Vec<u8> {
    (0..size)
        .map(|at| if at % PAGE == 0 { 0 } else { (at ^ at >> 8 ^ at >> 16) as u8 | 1 })
        .collect()
}

/// Zeros in ibv_srq_pingpong and ibv_xsrq_pingpong.
const STOCK_FILLS: [u8; 2] = [0x7B, 0];

fn stock_pattern(size: usize, fill: u8) -> Vec<u8> {
    (0..size).map(|at| if at % PAGE == 0 { 0 } else { fill }).collect()
}
