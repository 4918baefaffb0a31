use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};

use super::error::{ObjectError, ObjectSize, size};
use crate::{
    addr::Mtu,
    cm::CmConfig,
    congestion::CongestionConfig,
    defaults::defaults,
    gids::SourcePort,
    pkeys::PKeyTable,
    qp::{AckTimer, QpCaps, QpType},
    work::LateConfig,
};

defaults! {
    /// Limits, mostly named as in `ibv_device_attr`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub Limits {
        /// Protection domains.
        max_pd: usize = 1 << 16;
        /// Memory regions.
        max_mr: usize = 1 << 19;
        /// Memory windows, at most 2^20.
        max_mw: usize = 1 << 16;
        /// Completion queues.
        max_cq: usize = 1 << 16;
        /// Completions per queue.
        max_cqe: usize = 1 << 20;
        /// Queue pairs.
        max_qp: usize = 1 << 17;
        /// Shared receive queues, also XRC.
        max_srq: usize = 1 << 16;
        /// XRC domains.
        max_xrcd: usize = 1 << 16;
        /// Multicast groups.
        max_mcast_grp: usize = 8192;
        /// Queue pairs per multicast group.
        max_mcast_qp_attach: usize = 256;
        /// Address handles.
        max_ah: usize = 1 << 16;
        /// Requests per work queue.
        max_qp_wr: u32 = 1 << 15;
        /// SGEs per send request.
        max_sge: u32 = 32;
        /// SGEs per receive request.
        max_recv_sge: u32 = 32;
        /// Requests per shared receive queue.
        max_srq_wr: u32 = 1 << 15;
        /// SGEs per shared receive request.
        max_srq_sge: u32 = 32;
        /// Inline bytes per request.
        max_inline_data: u32 = 512;
        /// Device memory in bytes.
        max_dm_size: usize = 256 << 10;
        /// SGEs per READ (`max_sge_rd`), if below `max_sge`.
        max_read_sge: u32 = u32::MAX;
        /// Atomics, including ATOMIC WRITE.
        atomics: bool = true;
        /// Bytes per memory region.
        max_mr_size: u64 = u64::MAX;
        /// Allows posting in RESET, INIT and RTR, as some drivers do; sends leave with the next
        /// post in RTS.
        early_posts: bool = false;
        /// Send queue memory.
        send_queue: Option<SendQueueMemory> = None;
        /// Acknowledge timer.
        ack_timer: AckTimer = AckTimer::default();
    }
}

impl Limits {
    pub(super) fn that_hold(mut self, qpns: &core::ops::RangeInclusive<u32>) -> Self {
        let numbers = qpns.end().checked_sub(*qpns.start()).map_or(0, |span| span as usize + 1);
        // range half full: two draws find a free number on average
        self.max_qp = self.max_qp.min(numbers.div_ceil(2));
        self.max_mw = self.max_mw.min(1 << 20);
        // half of all numbers
        self.max_srq = self.max_srq.min(1 << 23);
        self
    }
}

/// Adapter configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterConfig {
    /// Unpredictable seed of keys, QPNs and PSNs.
    pub seed: [u8; 32],
    /// Largest payload of the link.
    pub port_mtu: Mtu,
    /// UDP source ports.
    pub source_port: SourcePort,
    /// P_Key table; the default partition by default.
    pub pkeys: PKeyTable,
    /// QPN range, by default 2 to 0xFFFFFE; disjoint among adapters of one address.
    pub qpns: core::ops::RangeInclusive<u32>,
    /// Outstanding READ bytes of all queue pairs, plus 768 per packet; default unlimited. Use half
    /// of the receive buffer, which drops the excess.
    pub read_budget: u64,
    /// Equal L_Key and R_Key, as in NICs and rxe, for programs that confuse them; default off.
    pub equal_keys: bool,
    /// Longest reliable WRITE without immediate, in packets, sent as WRITE ONLYs, whose equal
    /// lengths form a run; default 0.
    pub write_only_packets: u32,
    /// Header prediction, default on; affects only speed.
    pub header_prediction: bool,
    /// Windows and congestion control.
    pub congestion: CongestionConfig,
    /// Late placement, for tests of programs.
    pub late: LateConfig,
    /// Limits.
    pub limits: Limits,
    /// Connection management.
    pub cm: CmConfig,
    /// Unique GUID, by default random and marked local.
    pub guid: u64,
}

impl AdapterConfig {
    /// Default configuration.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            port_mtu: Mtu::B4096,
            source_port: SourcePort::PerFlow,
            pkeys: PKeyTable::default(),
            qpns: 2..=0xFF_FFFE,
            read_budget: u64::MAX,
            equal_keys: false,
            write_only_packets: 0,
            header_prediction: true,
            congestion: CongestionConfig::default(),
            late: LateConfig::default(),
            limits: Limits::default(),
            cm: CmConfig::default(),
            guid: random_guid(seed),
        }
    }
}

/// Uses another stream than the keys: peers see the GUID.
fn random_guid(seed: [u8; 32]) -> u64 {
    let mut rng = ChaCha12Rng::from_seed(seed);
    rng.set_stream(1);
    let mut guid = [0; 8];
    rng.fill_bytes(&mut guid);
    guid[0] = guid[0] & !1 | 2;
    u64::from_be_bytes(guid)
}

/// Send queue memory of an emulated adapter, with elements of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendQueueMemory {
    /// Most bytes per queue.
    pub queue: u32,
    /// Most bytes per element.
    pub element: u32,
    /// Element granularity.
    pub unit: u32,
    /// Bytes per element beside SGEs and inline data: RC, UC.
    pub connected: u32,
    /// UD.
    pub datagrams: u32,
    /// XRC.
    pub extended: u32,
}

/// Bytes of an SGE; granularity of inline data.
const SEGMENT: u32 = 16;
const INLINE_HEADER: u32 = 4;

impl SendQueueMemory {
    pub(super) fn check(&self, qp_type: QpType, caps: &QpCaps) -> Result<(), ObjectError> {
        let head = match qp_type {
            QpType::Rc | QpType::Uc => self.connected,
            QpType::Ud => self.datagrams,
            QpType::XrcInitiator => self.extended,
            QpType::XrcTarget | QpType::RawPacket => return Ok(()),
        };
        let room = self.element.saturating_sub(head);
        let inline = room.saturating_sub(INLINE_HEADER);
        limit(ObjectSize::MaxSendSge, caps.max_send_sge, room / SEGMENT)?;
        limit(ObjectSize::MaxInlineData, caps.max_inline_data, inline)?;
        let inline = match caps.max_inline_data {
            0 => 0,
            bytes => (INLINE_HEADER + bytes).next_multiple_of(SEGMENT),
        };
        let bytes = head.saturating_add(inline.max(caps.max_send_sge * SEGMENT));
        let element = bytes.checked_next_multiple_of(self.unit.max(1)).unwrap_or(u32::MAX).max(1);
        limit(ObjectSize::MaxSendWr, caps.max_send_wr, self.queue / element)
    }
}

fn limit(what: ObjectSize, asked: u32, limit: u32) -> Result<(), ObjectError> {
    size(what, asked as usize, 0, limit as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guid_is_no_part_of_the_seed() {
        for start in 0..=u8::MAX {
            let seed = core::array::from_fn(|i| start.wrapping_mul(31).wrapping_add(i as u8 * 7));
            let guid = AdapterConfig::new(seed).guid;
            assert_eq!(guid, AdapterConfig::new(seed).guid);
            assert_eq!(guid >> 56 & 3, 2, "assigned locally, of one device");
            for part in guid.to_be_bytes().windows(3) {
                assert!(!seed.windows(3).any(|bytes| bytes == part), "{guid:x} {seed:x?}");
            }
            let mut other = seed;
            other[31] ^= 1;
            assert_ne!(guid, AdapterConfig::new(other).guid, "all of the seed counts");
        }
    }
}
