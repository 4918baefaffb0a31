//! Record of an adapter, audited against the network and itself.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
};

use roce_transport::{
    adapter::Adapter,
    addr::Qpn,
    event::Disposition,
    psn::Psn,
    qp::State,
    time::Instant,
    trace::{Loss, PacketRecord, Reason, Record, Recovery, Sink, Timer, Trace, What, Why},
    wire::{NetHeader, Operation, Packet, Syndrome},
};

#[derive(Clone, Default)]
pub struct Recorded(Arc<Mutex<Vec<Record>>>);

impl Recorded {
    pub fn trace(&self) -> Trace {
        Trace::to(self.clone())
    }

    pub fn take(&self) -> Vec<Record> {
        mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Sink for Recorded {
    fn record(&mut self, record: Record) {
        self.0.lock().unwrap().push(record);
    }
}

/// Audit state of a queue pair.
#[derive(Default)]
struct Known {
    state: Option<State>,
    /// PSN after the last request packet.
    sent_end: Option<Psn>,
    /// Cause of the last retransmission.
    loss: Option<Loss>,
    /// Response or timer before other records.
    arrived: Option<Option<Syndrome>>,
    fired: Option<Timer>,
    window: Option<u64>,
    rate: Option<Option<u64>>,
}

#[derive(Default)]
pub struct Audit {
    queue_pairs: BTreeMap<Qpn, Known>,
    pub records: Vec<Record>,
    latest: Instant,
    /// Drops audited records.
    pub forgets: bool,
}

impl Audit {
    /// Audits a filled transmit buffer.
    #[track_caller]
    pub fn sent<'a>(
        &mut self,
        adapter: &Adapter,
        recorded: &Recorded,
        datagrams: impl Iterator<Item = (NetHeader, &'a [u8])>,
    ) {
        let records = recorded.take();
        let sent = records.iter().filter_map(|record| match &record.what {
            What::Sent { packet, .. } => Some(packet.clone()),
            _ => None,
        });
        let seen =
            datagrams.map(|(net, bytes)| PacketRecord::new(&net, &Packet::parse(bytes).unwrap()));
        assert!(sent.eq(seen), "the record of what was sent is not what the network saw");
        self.follow(adapter, records);
    }

    #[track_caller]
    pub fn arrived(&mut self, adapter: &Adapter, recorded: &Recorded, disposition: Disposition) {
        let records = recorded.take();
        let arrivals = records.iter().filter_map(|record| match &record.what {
            What::Arrived { disposition, .. } => Some(*disposition),
            What::Malformed { reason, .. } => Some(Disposition::Dropped(*reason)),
            _ => None,
        });
        let arrivals: Vec<_> = arrivals.collect();
        assert_eq!(arrivals.first(), Some(&disposition), "the record of what arrived");
        if let Disposition::Replicated { taken, copies } = disposition {
            let copies_taken = arrivals[1..]
                .iter()
                .filter(|copy| !matches!(copy, Disposition::Dropped(_)))
                .count();
            assert_eq!((arrivals.len() - 1, copies_taken), (copies as usize, taken as usize));
        } else {
            assert_eq!(arrivals.len(), 1);
        }
        self.follow(adapter, records);
    }

    /// Audits calls and timers.
    #[track_caller]
    pub fn others(&mut self, adapter: &Adapter, recorded: &Recorded) {
        let records = recorded.take();
        self.follow(adapter, records);
    }

    #[track_caller]
    fn follow(&mut self, adapter: &Adapter, records: Vec<Record>) {
        for record in &records {
            assert!(!record.to_string().contains('\n'), "{record}");
            assert!(record.at >= self.latest, "{record} at {:?}", self.latest);
            self.latest = record.at;
            let known = self.queue_pairs.entry(record.qpn).or_default();
            known.follow(adapter, record);
            if matches!(record.what, What::State { to: State::Reset, .. }) {
                *known = Known { window: known.window, ..Known::default() };
            }
        }
        // windows and rates equal the last record
        for (&qpn, known) in &self.queue_pairs {
            let Some(info) = adapter.query_qp(qpn) else { continue };
            assert!(known.window.is_none_or(|window| window == info.window), "{qpn}'s window");
            assert!(known.rate.is_none_or(|rate| rate == info.rate), "{qpn}'s rate");
            assert!(known.state.is_none_or(|state| state == info.state), "{qpn}'s state");
        }
        if !self.forgets {
            self.records.extend(records);
        }
    }
}

impl Known {
    #[track_caller]
    fn follow(&mut self, adapter: &Adapter, record: &Record) {
        match &record.what {
            What::Arrived { packet, .. } => {
                let syndrome = packet.headers.ext().aeth().map(|aeth| aeth.syndrome);
                (self.arrived, self.fired) = (Some(syndrome), None);
            }
            What::Timer(timer) => (self.arrived, self.fired) = (None, Some(*timer)),
            What::Recovery { loss, recovery, .. } => self.recover(*loss, *recovery, record),
            What::Sent { packet, why: Why::Queue(reason) } => {
                self.send(adapter, packet, *reason, record);
            }
            What::State { from, to, .. } => {
                assert!(self.state.is_none_or(|state| state == *from), "{record}");
                self.state = Some(*to);
            }
            What::Window { from, to, .. } => {
                assert!(self.window.is_none_or(|window| window == *from), "{record}");
                assert_ne!(from, to, "{record}");
                self.window = Some(*to);
            }
            What::Rate { from, to, .. } => {
                assert!(self.rate.is_none_or(|rate| rate == *from), "{record}");
                self.rate = Some(*to);
            }
            _ => {}
        }
    }

    /// A loss follows its sign.
    #[track_caller]
    fn recover(&mut self, loss: Loss, recovery: Recovery, record: &Record) {
        let fits = match loss {
            Loss::Nak => matches!(self.arrived, Some(Some(Syndrome::Nak(_)))),
            Loss::NotReady => matches!(self.arrived, Some(Some(Syndrome::RnrNak { .. }))),
            Loss::Probe => matches!(self.arrived, Some(Some(Syndrome::Ack { .. }))),
            Loss::ImpliedNak => self.arrived.is_some(),
            Loss::Timeout => matches!(self.fired, Some(Timer::Acknowledge(_))),
        };
        assert!(fits, "{record} after {:?} and {:?}", self.arrived, self.fired);
        if matches!(recovery, Recovery::Retransmit | Recovery::RetransmitAfter(_)) {
            self.loss = Some(loss);
        }
    }

    /// Retransmitted packets have an old PSN and the last loss.
    #[track_caller]
    fn send(&mut self, adapter: &Adapter, packet: &PacketRecord, reason: Reason, record: &Record) {
        let bth = packet.headers.bth();
        let is_old = self.sent_end.is_some_and(|end| bth.psn.is_before(end));
        match reason {
            Reason::First(_) => {
                assert!(!is_old, "{record}, but it was sent before");
                let mtu = adapter.query_qp(record.qpn).unwrap().path_mtu;
                let packets = match (bth.opcode.operation(), packet.headers.ext().reth()) {
                    (Operation::ReadRequest, Some(reth)) => mtu.packets(reth.dma_length),
                    _ => 1,
                };
                self.sent_end = Some(bth.psn.plus(packets));
            }
            Reason::Retransmit(_, loss) => {
                assert!(is_old, "{record}, but it is new");
                assert_eq!(self.loss, Some(loss), "{record}");
            }
            Reason::Probe { .. } => assert!(is_old, "{record}, but it is new"),
            Reason::Acknowledge(psn) | Reason::Negative(psn, _) => assert_eq!(psn, bth.psn),
            Reason::Datagram { .. } | Reason::Response { .. } | Reason::Congestion => {}
        }
    }
}
