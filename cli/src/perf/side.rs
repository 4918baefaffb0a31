use std::{
    ops::Range,
    time::{Duration, Instant},
};

use roce::{
    Access, CompletionChannel, CompletionQueue, Context, Device, Endpoint, Init, MemoryRegion, Mtu,
    NotifyKind, OpenOptions, QpInitAttr, QpType, QueuePair, RKey, RecvWr, Remote, SendWr,
};
use rustix::event::{PollFd, PollFlags};
use smallvec::SmallVec;

use super::{
    args::TestArgs,
    layout::{Layout, pattern},
    plan::{Plan, Test},
};
use crate::{
    common::{caps, wait},
    exchange::{Exchange, connect, gid_index},
    failure::{Failure, fail},
};

const RX_DEPTH: usize = 512;
/// Bit of `wr_id`.
const RECEIVE: u64 = 1 << 63;
/// A silent peer counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Side {
    pub(super) plan: Plan,
    pub(super) exchange: Exchange,
    pub(super) mtu: Mtu,
    pub(super) context: Context,
    pairs: Vec<QueuePair>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    /// Outgoing messages; target of the peer's READs.
    pub(super) source: MemoryRegion,
    /// Arriving messages, READ data, atomic results.
    pub(super) target: MemoryRegion,
    peer: PeerMemory,
    pub(super) arrivals: Arrivals,
    /// Polled before a sleep.
    seen: Option<Done>,
    /// Last sign of the peer.
    pub(super) heard: Instant,
}

struct PeerMemory {
    source: Remote,
    target: Remote,
}

/// The peer's SENDs.
pub(super) struct Arrivals {
    layout: Layout,
    /// Per queue pair, in this round.
    pub(super) counts: Vec<u64>,
    touched: Vec<Vec<bool>>,
}

impl Arrivals {
    fn new(largest: usize, qps: usize) -> Self {
        let layout = Layout::new(largest, largest, qps, RX_DEPTH);
        Self { layout, counts: vec![0; qps], touched: vec![vec![false; RX_DEPTH]; qps] }
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.touched.iter_mut().for_each(|places| places.fill(false));
    }

    fn add(&mut self, qp: usize, at: usize) {
        self.counts[qp] += 1;
        self.touched[qp][at % self.layout.slots] = true;
    }

    fn place(&self, qp: usize, at: usize) -> Range<usize> {
        self.layout.place(qp, at % self.layout.slots)
    }

    fn places(&self, qp: usize) -> impl Iterator<Item = usize> {
        let slots = (0..self.layout.slots).filter(move |&slot| self.touched[qp][slot]);
        slots.map(move |slot| self.layout.place(qp, slot).start)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Sent(usize),
    Received,
}

impl Side {
    pub(super) fn new(
        plan: Plan,
        args: &TestArgs,
        device: Option<Context>,
        mut exchange: Exchange,
    ) -> Result<Self, Failure> {
        exchange.send_text(&plan.greeting())?;
        plan.agree(&exchange.learn_text()?)?;
        let local = exchange.local()?.ip().to_canonical();
        let context = match device {
            Some(context) => context,
            None => Device::for_local(local)?.open(options(args)?)?,
        };
        let gid_index = gid_index(&context, local);
        let pd = context.alloc_pd()?;
        let (qps, largest) = (plan.qps, plan.largest());
        let bytes = Layout::new(largest, largest, qps, plan.depth).bytes(qps);
        let source = pd.allocate(bytes, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        let target = pd.allocate(bytes, Access::LOCAL_WRITE | Access::REMOTE_CHANGE)?;
        let rx_depth = if plan.test == Test::Send { RX_DEPTH } else { 0 };
        let channel = if plan.events { Some(context.create_channel()?) } else { None };
        let cq = context.create_cq(qps * (plan.depth + rx_depth), channel.as_ref())?;
        let caps = caps(plan.depth as u32, rx_depth as u32);
        let attr = QpInitAttr { caps, ..QpInitAttr::new(QpType::Rc, &cq) };
        let pairs = (0..qps).map(|_| pd.create_qp(&attr)).collect::<Result<Vec<_>, _>>()?;

        let ours = context.active_mtu();
        exchange.send_text(&memory(&source, &target, ours))?;
        let (peer, theirs) = parse_memory(&exchange.learn_text()?)
            .ok_or("the peer is not roce perf; start it on both sides")?;
        let most = if ours.bytes() < theirs.bytes() { ours } else { theirs };
        let mtu = plan.mtu.unwrap_or(most);
        if mtu.bytes() > most.bytes() {
            let (mtu, most) = (mtu.bytes(), most.bytes());
            fail!("-m {mtu} exceeds the active MTU of the ports; at most {most}");
        }
        let mut side = Self {
            exchange,
            mtu,
            context,
            cq,
            channel,
            source,
            target,
            peer,
            arrivals: Arrivals::new(largest, qps),
            seen: None,
            heard: Instant::now(),
            pairs,
            plan,
        };
        side.connect(gid_index)?;
        for (qp, pair) in side.pairs.iter().enumerate() {
            let requests: Vec<_> = (0..rx_depth).map(|at| side.receive(qp, at)).collect();
            pair.post_recv(&requests)?;
        }
        Ok(side)
    }

    fn connect(&mut self, gid_index: u16) -> Result<(), Failure> {
        let endpoints = self.pairs.iter().map(|qp| qp.endpoint(gid_index));
        let ours: Vec<Endpoint> = endpoints.collect::<Option<_>>().ok_or_else(|| {
            format!("{} has no address of the peer's address family", self.context.name())
        })?;
        let (pairs, mtu) = (&self.pairs, self.mtu);
        self.exchange.swap(&ours, |theirs| {
            for ((qp, ours), theirs) in pairs.iter().zip(&ours).zip(theirs) {
                let access = Access::REMOTE_CHANGE | Access::REMOTE_READ;
                qp.to_init(Init { access, ..Init::default() })?;
                connect(qp, mtu, 16, gid_index, ours.psn, theirs)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    pub(super) fn layout(&self, size: usize) -> Layout {
        Layout::new(size, self.plan.largest(), self.plan.qps, self.plan.depth)
    }

    pub(super) fn prepare(&mut self, round: usize, layout: Layout) -> Result<(), Failure> {
        let message = pattern(layout.place(0, 0).len(), round, self.exchange.is_client);
        for qp in 0..self.plan.qps {
            for slot in 0..layout.slots {
                self.source.write_at(layout.place(qp, slot).start, &message)?;
            }
        }
        self.target.fill(0)?;
        self.arrivals.clear();
        let ready = format!("ready {round}");
        self.exchange.send_text(&ready)?;
        if self.exchange.learn_text()? != ready {
            return Err("the peer is at another step; see its output".into());
        }
        self.heard = Instant::now();
        Ok(())
    }

    /// `slots`: here and at the peer. A READ goes the other way.
    pub(super) fn post(
        &self,
        qp: usize,
        layout: Layout,
        slots: impl Iterator<Item = (usize, usize)>,
    ) -> Result<(), Failure> {
        let requests: SmallVec<[_; 1]> =
            slots.map(|(slot, peer_slot)| self.request(qp, layout, slot, peer_slot)).collect();
        Ok(self.pairs[qp].post_send(&requests)?)
    }

    fn request(&self, qp: usize, layout: Layout, slot: usize, peer_slot: usize) -> SendWr {
        let (place, far) = (layout.place(qp, slot), layout.place(qp, peer_slot));
        let part = |of: Remote, place: Range<usize>| Remote {
            address: of.address + place.start as u64,
            ..of
        };
        let id = qp as u64;
        match self.plan.test {
            Test::Write => SendWr::write(id, part(self.peer.target, far), self.source.sge(place)),
            Test::Read => SendWr::read(id, part(self.peer.source, far), self.target.sge(place)),
            Test::Send => SendWr::send(id, self.source.sge(place)),
            // one counter per queue pair
            Test::Atomic => {
                let counter = part(self.peer.target, layout.place(qp, 0));
                SendWr::fetch_add(id, counter, 1, self.source.sge(place))
            }
        }
    }

    fn receive(&self, qp: usize, at: usize) -> RecvWr {
        let sge = self.target.sge(self.arrivals.place(qp, at));
        RecvWr::new(RECEIVE | (qp as u64) << 32 | at as u64, [sge])
    }

    /// Checks the size of received messages, and reposts their requests.
    pub(super) fn poll(&mut self, size: usize) -> Result<Option<Done>, Failure> {
        if let Some(done) = self.seen.take() {
            return Ok(Some(done));
        }
        let Some(wc) = self.cq.poll_one() else { return Ok(None) };
        self.heard = Instant::now();
        let ok = wc.result.map_err(|error| format!("a message of {size} bytes failed: {error}"))?;
        if wc.wr_id & RECEIVE == 0 {
            return Ok(Some(Done::Sent(wc.wr_id as usize)));
        }
        let (qp, at) = ((wc.wr_id & !RECEIVE) as usize >> 32, wc.wr_id as u32 as usize);
        if ok.byte_len as usize != size {
            let got = ok.byte_len;
            fail!("a message has {got} bytes, expected {size}");
        }
        self.arrivals.add(qp, at);
        self.pairs[qp].post_recv(&[self.receive(qp, at)])?;
        Ok(Some(Done::Received))
    }

    /// Sleeps until a completion or, with `or_peer`, word from the peer. Polling only checks the
    /// time.
    pub(super) fn idle(&mut self, size: usize, or_peer: bool) -> Result<(), Failure> {
        if let Some(channel) = self.channel.clone() {
            self.cq.req_notify(NotifyKind::Next);
            self.seen = self.poll(size)?;
            if self.seen.is_some() {
                return Ok(());
            }
            let mut both = [
                PollFd::new(&channel, PollFlags::IN),
                PollFd::from_borrowed_fd(self.exchange.as_fd(), PollFlags::IN),
            ];
            let count = if or_peer { 2 } else { 1 };
            wait(&mut both[..count], Some(Duration::from_secs(1)))?;
            while channel.poll().is_some() {}
        }
        if self.heard.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            fail!("nothing received from the peer for {seconds} s; check that it still runs");
        }
        Ok(())
    }

    pub(super) fn has_peer_data(&self) -> bool {
        let mut one = [PollFd::from_borrowed_fd(self.exchange.as_fd(), PollFlags::IN)];
        wait(&mut one, Some(Duration::ZERO)).is_ok() && !one[0].revents().is_empty()
    }

    /// `written`: messages placed by WRITE or READ.
    pub(super) fn check(
        &self,
        round: usize,
        layout: Layout,
        written: &[u64],
    ) -> Result<(), Failure> {
        let size = layout.place(0, 0).len();
        let expected = pattern(size, round, !self.exchange.is_client);
        for (qp, &count) in written.iter().enumerate() {
            if self.plan.test == Test::Atomic {
                let sum = self.target.load_u64(layout.place(qp, 0).start)?;
                if sum != count {
                    fail!("invalid data: the sum is {sum} after {count} additions of 1");
                }
                continue;
            }
            let places = if self.plan.test == Test::Send {
                self.arrivals.places(qp).collect::<Vec<_>>()
            } else {
                let slots = 0..layout.slots.min(count as usize);
                slots.map(|slot| layout.place(qp, slot).start).collect()
            };
            for at in places {
                let bytes = self.target.to_vec(at..at + size)?;
                differs(&bytes, &expected)?;
            }
        }
        Ok(())
    }

    /// Exchanges verdicts.
    pub(super) fn conclude(&mut self, checked: Result<(), Failure>) -> Result<(), Failure> {
        let verdict = checked.as_ref().err().map_or("valid".to_owned(), ToString::to_string);
        self.exchange.send_text(&verdict)?;
        let theirs = self.exchange.learn_text()?;
        checked?;
        if theirs != "valid" {
            fail!("the peer reports: {theirs}");
        }
        Ok(())
    }
}

pub(super) fn options(args: &TestArgs) -> Result<OpenOptions, Failure> {
    let mut options = OpenOptions::from_environment()?;
    options.sockets_only |= args.sockets;
    options.shards = args.queues.shards.map(usize::from).or(options.shards);
    Ok(options)
}

pub(super) fn differs(bytes: &[u8], expected: &[u8]) -> Result<(), Failure> {
    match bytes.iter().zip(expected).position(|(got, wanted)| got != wanted) {
        None => Ok(()),
        Some(at) => Err(format!(
            "invalid data: byte {at} of a message of {} is {:#04x}, expected {:#04x}",
            bytes.len(),
            bytes[at],
            expected[at]
        )
        .into()),
    }
}

fn memory(source: &MemoryRegion, target: &MemoryRegion, mtu: Mtu) -> String {
    let (source, target) = (source.remote(0), target.remote(0));
    format!(
        "{:x}:{:x}:{:x}:{:x}:{:x}",
        source.address,
        source.rkey.0,
        target.address,
        target.rkey.0,
        mtu.bytes()
    )
}

fn parse_memory(text: &str) -> Option<(PeerMemory, Mtu)> {
    let mut fields = text.split(':').map(|field| u64::from_str_radix(field, 16).ok());
    let mut number = || fields.next().flatten();
    let mut remote = || {
        let address = number()?;
        Some(Remote { address, rkey: RKey(u32::try_from(number()?).ok()?) })
    };
    let peer = PeerMemory { source: remote()?, target: remote()? };
    Some((peer, Mtu::from_bytes(u32::try_from(number()?).ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_that_is_wrong_is_found() {
        let expected = pattern(5000, 3, true);
        assert!(differs(&expected, &expected).is_ok());
        let mut bytes = expected.clone();
        bytes[4321] ^= 1;
        let error = differs(&bytes, &expected).unwrap_err().to_string();
        assert!(error.starts_with("invalid data: byte 4321 of a message of 5000 is 0x"), "{error}");
    }

    #[test]
    fn memory_is_told() {
        let (peer, mtu) = parse_memory("7f00:1a:8000:2b:1000").unwrap();
        assert_eq!(peer.source, Remote { address: 0x7F00, rkey: RKey(0x1A) });
        assert_eq!(peer.target, Remote { address: 0x8000, rkey: RKey(0x2B) });
        assert_eq!(mtu, Mtu::B4096);
        assert!(parse_memory("7f00:1a:8000:2b").is_none() && parse_memory("ready 0").is_none());
    }
}
