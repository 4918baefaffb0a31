use std::time::{Duration, Instant};

use roce::{
    Access, CompletionChannel, CompletionQueue, Context, Init, MemoryRegion, Mtu, NotifyKind, QKey,
    QpInitAttr, QpType, QueuePair, RecvWr, SendWr, SharedReceiveQueue, SrqAttr, SrqId,
    UdDestination, Wc, WcOpcode,
};

use crate::{
    common::caps,
    failure::{Failure, fail},
};

const GRH: usize = 40;
/// The stock tools check only the first byte of each page; it must be zero.
const PAGE: usize = 4096;
/// A silent peer counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// The stock tools'.
pub(super) const QKEY: QKey = QKey(0x1111_1111);

pub(super) struct Plan {
    pub(super) qp_type: QpType,
    /// Several share a receive queue.
    pub(super) num_qp: usize,
    pub(super) shared: bool,
    pub(super) size: usize,
    pub(super) iters: u32,
    pub(super) mtu: Option<Mtu>,
    pub(super) rx_depth: u32,
    pub(super) validate: bool,
    pub(super) events: bool,
}

impl Plan {
    pub(super) fn check_datagram(&self, mtu: Mtu) -> Result<(), Failure> {
        if self.qp_type == QpType::Ud && self.size > mtu.bytes() as usize {
            let (size, mtu) = (self.size, mtu.bytes());
            fail!(
                "-s {size} exceeds the path MTU {mtu}: a datagram is one packet; use -s {mtu} or \
                 less, or a larger -m"
            );
        }
        Ok(())
    }
}

/// The side that does not begin echoes.
pub(super) struct Session {
    pub(super) plan: Plan,
    pub(super) pairs: Vec<QueuePair>,
    pub(super) target: Option<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
    /// Bytes before a message.
    head: usize,
    /// Content of every message; the echoing side learns it from the first.
    expected: Option<Vec<u8>>,
    begins: bool,
    pub(super) destination: Option<UdDestination>,
    pub(super) remote_srq: Option<SrqId>,
}

impl Session {
    pub(super) fn new(context: &Context, plan: Plan, is_client: bool) -> Result<Self, Failure> {
        let Plan { qp_type, num_qp, shared, size, rx_depth, events, .. } = plan;
        let is_xrc = qp_type == QpType::XrcInitiator;
        // As in the stock tools, the XRC server begins.
        let begins = is_client != is_xrc;
        let head = if qp_type == QpType::Ud { GRH } else { 0 };
        let pd = context.alloc_pd()?;
        let incoming = pd.allocate(head + size, Access::LOCAL_WRITE)?;
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
        let init = Init { qkey: QKEY, ..Init::default() };
        let mut pairs = Vec::new();
        for _ in 0..num_qp {
            let qp = pd.create_qp(&attr)?;
            qp.to_init(init)?;
            pairs.push(qp);
        }
        if is_xrc {
            let xrcd = context.open_xrcd()?;
            srq = Some(pd.create_xrc_srq(srq_attr, &xrcd, &cq)?);
            let qp = xrcd.create_target()?;
            qp.to_init(init)?;
            target = Some(qp);
        }
        let session = Self {
            plan,
            pairs,
            target,
            srq,
            cq,
            channel,
            outgoing,
            incoming,
            head,
            expected,
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
        let wrs = vec![RecvWr::new(0, [self.incoming.sge_all()]); count as usize];
        match &self.srq {
            Some(srq) => srq.post_recv(&wrs)?,
            None => self.pairs[0].post_recv(&wrs)?,
        }
        Ok(())
    }

    fn post_send(&self, index: usize) -> Result<(), Failure> {
        let data = if self.begins {
            self.outgoing.sge_all()
        } else {
            self.incoming.sge(self.head..self.head + self.plan.size)
        };
        let wr = match self.destination {
            Some(to) => SendWr::send_to(0, to, data),
            None => SendWr { remote_srq: self.remote_srq, ..SendWr::send(0, data) },
        };
        Ok(self.pairs[index].post_send(&[wr])?)
    }

    /// Each queue pair waits for its send and the reply.
    pub(super) fn play(&mut self) -> Result<(), Failure> {
        let (mut sent, mut received) = (0, 0);
        let Plan { iters, rx_depth, .. } = self.plan;
        let mut posted = rx_depth;
        let mut pending = vec![Pending { send: self.begins, receive: true }; self.pairs.len()];
        if self.begins {
            (0..self.pairs.len()).try_for_each(|index| self.post_send(index))?;
        }
        let mut listen_grace = Instant::now();
        while sent < iters || received < iters {
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
                self.check(ok.byte_len as usize, received)?;
                if self.plan.validate && self.begins && self.pairs.len() == 1 {
                    // This message must not pass for the next.
                    self.incoming.fill(0)?;
                }
                posted -= 1;
                if posted <= self.pairs.len() as u32 {
                    self.post_receives(rx_depth - posted)?;
                    posted = rx_depth;
                }
            } else {
                sent += 1;
                pending[index].send = false;
            }
            if pending[index] == Pending::default() && sent < iters {
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

    fn check(&mut self, length: usize, number: u32) -> Result<(), Failure> {
        if !self.plan.validate {
            return Ok(());
        }
        let size = length - self.head;
        if size != self.plan.size {
            fail!(
                "message {number} has {size} bytes, expected {}; use the same -s on both sides",
                self.plan.size
            );
        }
        let message = self.incoming.to_vec(self.head..length)?;
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
