//! One adapter, its program's objects, and the required results of calls.

use std::{net::IpAddr, sync::Arc};

use roce_transport::{
    adapter::{Adapter, AdapterConfig, Limits, PdId, TransmitBuffer, TransmitLimits},
    addr::{Mtu, Qpn},
    mem::{HeapMemory, Memory, RKey, Region},
    qp::{AckTimer, QpInfo, QpType},
    work::{AhId, CompletionQueue, SrqId, SrqInfo, Wc, XrcdId},
};

use super::Depth;

/// Small enough to be reached.
pub(super) const LIMITS: Limits = Limits {
    max_pd: 3,
    max_mr: 6,
    max_mw: 4,
    max_cq: 4,
    max_cqe: 4096,
    max_qp: 5,
    max_srq: 2,
    max_xrcd: 1,
    max_mcast_grp: 1,
    max_mcast_qp_attach: 2,
    max_ah: 2,
    max_dm_size: 0,
    max_qp_wr: 8,
    max_sge: 3,
    max_recv_sge: 3,
    max_srq_wr: 8,
    max_srq_sge: 3,
    max_inline_data: 32,
    max_read_sge: 3,
    atomics: true,
    early_posts: false,
    send_queue: None,
    ack_timer: AckTimer::USUAL,
    max_mr_size: u64::MAX,
};

pub(super) const REGION: usize = 2048;
pub(super) const FILL: u8 = 0xEE;

const EVENTS_MAX: usize = 64;

pub(super) struct Memories {
    pub(super) region: Arc<Region>,
    pub(super) memory: Arc<HeapMemory>,
    pub(super) pd: PdId,
    /// Expected content, if nothing may write it.
    pub(super) still: Option<Vec<u8>>,
    pub(super) live: bool,
}

pub(super) struct Window {
    pub(super) rkey: RKey,
    pub(super) pd: PdId,
}

pub(super) struct Queue {
    pub(super) cq: Arc<CompletionQueue>,
    pub(super) live: bool,
}

pub(super) struct Srq {
    pub(super) id: SrqId,
    pub(super) pd: PdId,
}

pub(super) struct Pair {
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    pub(super) pd: PdId,
    pub(super) cqs: [usize; 2],
    pub(super) srq: Option<SrqId>,
    pub(super) sig_all: bool,
    /// Posted requests, oldest first; sends with whether success gives a completion.
    pub(super) sends: Vec<(u64, bool)>,
    pub(super) receives: Vec<u64>,
}

pub(super) struct Known {
    pub(super) ip: IpAddr,
    pub(super) qps: Vec<Qpn>,
    pub(super) keys: Vec<(RKey, u64)>,
}

pub(super) struct Side {
    pub(super) ip: IpAddr,
    pub(super) adapter: Adapter,
    pub(super) buffer: TransmitBuffer,
    pub(super) pds: Vec<PdId>,
    pub(super) regions: Vec<Memories>,
    pub(super) windows: Vec<Window>,
    pub(super) cqs: Vec<Queue>,
    pub(super) srqs: Vec<Srq>,
    pub(super) qps: Vec<Pair>,
    pub(super) ahs: Vec<(AhId, PdId)>,
    pub(super) xrcds: Vec<XrcdId>,
    pub(super) targets: Vec<(Qpn, XrcdId)>,
    /// In, or taken from, shared receive queues.
    pub(super) shared: Vec<u64>,
    pub(super) last_id: u64,
    pub(super) depth: Depth,
}

impl Side {
    pub(super) fn new(number: u8, header_prediction: bool) -> Self {
        let config = AdapterConfig {
            limits: LIMITS,
            port_mtu: Mtu::B1024,
            header_prediction,
            ..AdapterConfig::new([number; 32])
        };
        let mut adapter = Adapter::new(config);
        let ip = IpAddr::from([10, 0, 0, number]);
        adapter.set_gids(vec![ip.into()]);
        Self {
            ip,
            adapter,
            buffer: TransmitBuffer::new(1 << 16, TransmitLimits { segments: 8, bytes: 1 << 15 }),
            pds: Vec::new(),
            regions: Vec::new(),
            windows: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            qps: Vec::new(),
            ahs: Vec::new(),
            xrcds: Vec::new(),
            targets: Vec::new(),
            shared: Vec::new(),
            last_id: 0,
            depth: Depth::default(),
        }
    }

    pub(super) fn known(&self) -> Known {
        let windows = self.windows.iter().map(|window| (window.rkey, 1 << 32));
        let regions =
            self.regions.iter().map(|region| (region.region.rkey(), region.region.address()));
        Known {
            ip: self.ip,
            qps: self.qps.iter().map(|qp| qp.qpn).collect(),
            keys: regions.chain(windows).collect(),
        }
    }

    pub(super) fn nth_qp(&self, n: u8) -> Option<Qpn> {
        self.qps.get(usize::from(n) % self.qps.len().max(1)).map(|qp| qp.qpn)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            qps: self.qps.iter().map(|qp| self.adapter.query_qp(qp.qpn)).collect(),
            srqs: self.srqs.iter().map(|srq| self.adapter.query_srq(srq.id)).collect(),
            completions: self
                .cqs
                .iter()
                .map(|queue| (queue.cq.len(), queue.cq.capacity()))
                .collect(),
            groups: self.adapter.mcast_groups(None).count(),
            windows: self.regions.iter().map(|region| region.region.has_windows()).collect(),
        }
    }

    /// A refused call has changed nothing. `expected` is the required result, if known.
    #[track_caller]
    pub(super) fn judge<T, E: std::fmt::Debug + PartialEq>(
        &mut self,
        before: &Snapshot,
        result: Result<T, E>,
        expected: Option<Result<(), E>>,
    ) -> Option<T> {
        if let Some(expected) = expected {
            assert_eq!(
                result.as_ref().map(|_| ()).map_err(|error| format!("{error:?}")),
                expected.map_err(|e| format!("{e:?}"))
            );
        }
        match result {
            Ok(value) => {
                self.depth.accepted += 1;
                Some(value)
            }
            Err(_) => {
                self.depth.refused += 1;
                assert_eq!(self.snapshot(), *before, "a refused call changed something");
                None
            }
        }
    }

    pub(super) fn check(&mut self) {
        let count = std::iter::from_fn(|| self.adapter.poll_event()).take(EVENTS_MAX + 1).count();
        assert!(count <= EVENTS_MAX, "more than {EVENTS_MAX} events in one step");
        let mut wcs = Vec::new();
        for (index, queue) in self.cqs.iter().enumerate() {
            wcs.extend(std::iter::from_fn(|| queue.cq.pop()).map(|wc| (index, wc)));
        }
        for (index, wc) in wcs {
            self.complete(index, &wc);
        }
        for region in &self.regions {
            if let Some(still) = &region.still {
                assert!(
                    bytes(&region.memory) == *still,
                    "memory has changed that no one may write"
                );
            }
        }
    }

    fn complete(&mut self, cq: usize, wc: &Wc) {
        let qp = self
            .qps
            .iter_mut()
            .find(|qp| qp.qpn == wc.qpn)
            .unwrap_or_else(|| panic!("of no queue pair: {wc:?}"));
        match wc.result {
            Ok(_) => self.depth.succeeded += 1,
            Err(_) => self.depth.failed += 1,
        }
        if let Some(at) = qp.sends.iter().position(|&(id, _)| id == wc.wr_id) {
            assert_eq!(cq, qp.cqs[0], "in another queue: {wc:?}");
            let (_, signaled) = qp.sends[at];
            assert!(signaled || wc.result.is_err(), "an unsignaled success was told of: {wc:?}");
            assert!(
                qp.sends[..at].iter().all(|&(_, signaled)| !signaled),
                "before one that was posted before it: {wc:?}"
            );
            qp.sends.drain(..=at);
        } else if let Some(at) = qp.receives.iter().position(|&id| id == wc.wr_id) {
            assert_eq!(
                (cq, at),
                (qp.cqs[1], 0),
                "receive requests complete in their order: {wc:?}"
            );
            qp.receives.remove(0);
        } else {
            let at = self.shared.iter().position(|&id| id == wc.wr_id).filter(|_| qp.srq.is_some());
            let at = at.unwrap_or_else(|| {
                panic!("never posted, or completed before, or taken back: {wc:?}")
            });
            assert_eq!(cq, qp.cqs[1]);
            self.shared.remove(at);
        }
    }
}

#[derive(PartialEq, Debug)]
pub(super) struct Snapshot {
    qps: Vec<Option<QpInfo>>,
    srqs: Vec<Option<SrqInfo>>,
    completions: Vec<(usize, usize)>,
    groups: usize,
    windows: Vec<bool>,
}

pub(super) fn bytes(memory: &HeapMemory) -> Vec<u8> {
    let mut bytes = vec![0; REGION];
    memory.read_at(0, &mut bytes).expect("memory of our own");
    bytes
}
