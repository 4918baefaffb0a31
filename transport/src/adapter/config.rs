//! Configuration and limits of an adapter.

use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};

use super::send_queue::SendQueueMemory;
use crate::{
    addr::Mtu, cm::CmConfig, congestion::CongestionConfig, gids::SourcePort, pkeys::PKeyTable,
    qp::AckTimer, work::LateConfig,
};

/// Numbers of objects that an adapter holds, and the largest sizes that it grants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
// Each field is a limit by itself, most with the name that it has in `ibv_device_attr`.
pub struct Limits {
    /// Protection domains.
    pub max_pd: usize,
    /// Memory regions.
    pub max_mr: usize,
    /// Memory windows, at most 2^20.
    pub max_mw: usize,
    /// Completion queues.
    pub max_cq: usize,
    /// Completions in one queue.
    pub max_cqe: usize,
    /// Queue pairs.
    pub max_qp: usize,
    /// Shared receive queues, XRC SRQs among them.
    pub max_srq: usize,
    /// XRC domains.
    pub max_xrcd: usize,
    /// Multicast groups with members.
    pub max_mcast_grp: usize,
    /// Queue pairs in one multicast group: a packet to it costs as much as so many.
    pub max_mcast_qp_attach: usize,
    /// Address handles.
    pub max_ah: usize,
    /// Requests in one work queue.
    pub max_qp_wr: u32,
    /// Elements in the list of one request of a send queue.
    pub max_sge: u32,
    /// Elements in the list of one request of a receive queue.
    pub max_recv_sge: u32,
    /// Requests in one shared receive queue.
    pub max_srq_wr: u32,
    /// Elements in the list of one request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Inline bytes of one request.
    pub max_inline_data: u32,
    /// Bytes of device memory, all pieces together.
    pub max_dm_size: usize,
    /// Elements in the list of one READ (`max_sge_rd`), where that is less than `max_sge`.
    pub max_read_sge: u32,
    /// Compare and swap, fetch and add, and ATOMIC WRITE; without, they cannot be posted.
    pub atomics: bool,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// Requests can be posted in RESET, INIT and RTR, as with drivers that do not look at the
    /// state. Such sends leave with the next one that is posted in RTS.
    pub early_posts: bool,
    /// Memory of a send queue, where that is limited, too.
    pub send_queue: Option<SendQueueMemory>,
    /// How it keeps acknowledge timeouts.
    pub ack_timer: AckTimer,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pd: 1 << 16,
            max_mr: 1 << 19,
            max_mw: 1 << 16,
            max_cq: 1 << 16,
            max_cqe: 1 << 20,
            max_qp: 1 << 17,
            max_srq: 1 << 16,
            max_xrcd: 1 << 16,
            max_mcast_grp: 8192,
            max_mcast_qp_attach: 256,
            max_ah: 1 << 16,
            max_qp_wr: 1 << 15,
            max_sge: 32,
            max_recv_sge: 32,
            max_srq_wr: 1 << 15,
            max_srq_sge: 32,
            max_inline_data: 512,
            max_dm_size: 256 << 10,
            max_read_sge: u32::MAX,
            atomics: true,
            max_mr_size: u64::MAX,
            early_posts: false,
            send_queue: None,
            ack_timer: AckTimer::default(),
        }
    }
}

impl Limits {
    /// The same, but no promise beyond the numbers that there are for queue pairs, shared receive
    /// queues and memory windows.
    pub(super) fn that_hold(mut self, qpns: &core::ops::RangeInclusive<u32>) -> Self {
        let numbers = qpns.end().checked_sub(*qpns.start()).map_or(0, |span| span as usize + 1);
        // with the range at most half full a free number is found after two draws on average
        self.max_qp = self.max_qp.min(numbers.div_ceil(2));
        self.max_mw = self.max_mw.min(1 << 20);
        // half of all numbers at most, so that a free one is soon found
        self.max_srq = self.max_srq.min(1 << 23);
        self
    }
}

/// Configuration of an adapter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterConfig {
    /// Seed of all its random numbers: keys, queue pair numbers, PSNs. Must be
    /// unpredictable outside of tests.
    pub seed: [u8; 32],
    /// The most payload that the link carries in a packet.
    pub port_mtu: Mtu,
    /// UDP source ports of what it sends.
    pub source_port: SourcePort,
    /// The partitions that the adapter is a member of. By default full membership of the default
    /// partition.
    pub pkeys: PKeyTable,
    /// Queue pair numbers are drawn from here; 2..=0xFFFFFE by default. A narrower range lets
    /// several adapters share an address.
    pub qpns: core::ops::RangeInclusive<u32>,
    /// Limit of outstanding READ bytes of all queue pairs, each packet counted with 768 bytes of
    /// overhead. At least one packet; no limit by default. A READ beyond half of it leaves as
    /// several requests. Half of what the receiving socket holds is right: data that it does not
    /// hold is lost.
    pub read_budget: u64,
    /// The L_Key and the R_Key of a region are equal, as on network cards and rxe: programs that
    /// tell their peers the wrong one of the two work. By default they differ.
    pub equal_keys: bool,
    /// Reliable WRITEs of up to so many packets, without immediate data, leave as WRITE Only
    /// packets. A First packet is longer than the others; packets of equal length can be a run. A
    /// peer that refuses one of them has placed those before it. 0 by default: none does.
    pub write_only_packets: u32,
    /// Fast path for the packets that an established connection nearly always sends and receives
    /// next. Without it, only the time differs. On by default.
    pub header_prediction: bool,
    /// Windows, and the reaction to congestion.
    pub congestion: CongestionConfig,
    /// Late placement and completions, for tests of programs.
    pub late: LateConfig,
    /// Sizes.
    pub limits: Limits,
    /// Configuration of connection management.
    pub cm: CmConfig,
    /// The adapter's GUID, by which peers tell it from others: unique. By default random, but
    /// the same for the same seed, of which it tells nothing, and marked as assigned locally.
    pub guid: u64,
}

impl AdapterConfig {
    /// An adapter with this seed, everything else at its default: path MTU 4,096, a source port per
    /// flow.
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

/// A GUID that nobody else has, with the mark of local assignment. Peers see it: it is drawn on
/// another stream than the adapter's keys and numbers.
fn random_guid(seed: [u8; 32]) -> u64 {
    let mut rng = ChaCha12Rng::from_seed(seed);
    rng.set_stream(1);
    let mut guid = [0; 8];
    rng.fill_bytes(&mut guid);
    guid[0] = guid[0] & !1 | 2;
    u64::from_be_bytes(guid)
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
