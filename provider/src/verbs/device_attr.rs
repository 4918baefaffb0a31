//! Attributes of a device.

use std::fmt;

use bitflags::bitflags;
use roce_transport::{
    adapter::{Limits, PKeyTable},
    qp::MAX_RD_ATOMIC,
    work::CqModeration,
};

/// Globally unique identifier: 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Guid(pub [u8; 8]);

impl Guid {
    /// GUID of a MAC address: extended to 64 bits (EUI-64).
    pub(crate) const fn of_mac([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
    }
}

impl fmt::Display for Guid {
    /// The format of verbs tools: `0211:22ff:fe33:4455`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f_, g, h] = self.0;
        write!(f, "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f_:02x}:{g:02x}{h:02x}")
    }
}

bitflags! {
    /// Capabilities of a device (`ibv_device_cap_flags`); the numbers are those of the C API.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct DeviceCaps: u64 {
        /// Packets with a wrong P_Key are counted.
        const BAD_PKEY_CNTR = 1 << 1;
        /// Packets with a wrong Q_Key are counted.
        const BAD_QKEY_CNTR = 1 << 2;
        /// A port that becomes active is an asynchronous event.
        const PORT_ACTIVE_EVENT = 1 << 10;
        /// There is a system image GUID.
        const SYS_IMAGE_GUID = 1 << 11;
        /// A receiver that is not ready answers with an RNR NAK.
        const RC_RNR_NAK_GEN = 1 << 12;
        /// Shared receive queues can be resized.
        const SRQ_RESIZE = 1 << 13;
        /// Memory windows of type 1.
        const MEM_WINDOW = 1 << 17;
        /// Extended reliable connections.
        const XRC = 1 << 20;
        /// SEND with invalidate, local invalidation, and binding by a work request.
        const MEM_MGT_EXTENSIONS = 1 << 21;
        /// Memory windows of type 2A.
        const MEM_WINDOW_TYPE_2A = 1 << 23;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = 1 << 24;
        /// Queue pairs of raw packets, and flows: of raw devices.
        const MANAGED_FLOW_STEERING = 1 << 29;
    }
}

/// Reach of the atomicity of atomic operations (`ibv_atomic_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum AtomicCap {
    /// There are no atomic operations (`IBV_ATOMIC_NONE`): said by a device with a
    /// [profile](crate::Profile) of such an adapter, which carries them out nevertheless.
    None,
    /// Against other operations of the adapter only (`IBV_ATOMIC_HCA`).
    Hca,
    /// Against everything, this host's processors included (`IBV_ATOMIC_GLOB`): peers' operations
    /// are the processor's own on the same words, as long as the program also uses atomic accesses.
    Global,
}

impl fmt::Display for AtomicCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("ATOMIC_NONE"),
            Self::Hca => f.write_str("ATOMIC_HCA"),
            Self::Global => f.write_str("ATOMIC_GLOB"),
        }
    }
}

/// What regions that fetch their pages on demand can be used for (`ibv_odp_caps`); the bits are
/// those of the C API.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OdpCaps {
    /// `general_caps`: 1, they are there; 2, also for the whole address space.
    pub general: u32,
    /// `rc_odp_caps`: 1 SEND, 2 receive, 4 WRITE, 8 READ, 16 atomics, 32 shared receive queue.
    pub rc: u32,
    /// `uc_odp_caps`.
    pub uc: u32,
    /// `ud_odp_caps`.
    pub ud: u32,
    /// `xrc_odp_caps`.
    pub xrc: u32,
}

impl OdpCaps {
    /// All that there is: READs and atomics on reliable services, WRITEs on connected ones.
    const ALL: Self = Self { general: 0b11, rc: 0x3F, uc: 0x27, ud: 0x23, xrc: 0x3F };
}

/// Attributes of a device (`ibv_device_attr_ex`). Beyond [`limits`](Self::limits) objects are
/// refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
// The fields are those of `ibv_device_attr_ex`, with the names that programs know.
pub struct DeviceAttr {
    /// Version of this software, or that of a [profile](crate::Profile).
    pub fw_ver: &'static str,
    /// GUID of the open device, different each time, also on one interface: random, but for the
    /// bit of local assignment.
    pub node_guid: Guid,
    /// GUID of the network interface, the same for all devices on it: its MAC address, extended to
    /// 64 bits.
    pub sys_image_guid: Guid,
    /// 0xFFFFFF: no vendor has been registered; or that of a profile.
    pub vendor_id: u32,
    /// 0.
    pub vendor_part_id: u32,
    /// 0.
    pub hw_ver: u32,
    /// Capabilities.
    pub device_cap_flags: DeviceCaps,
    /// Bytes of a memory region: bounded by the address space alone.
    pub max_mr_size: u64,
    /// Sizes of pages, one bit each: 4 KiB and every larger one.
    pub page_size_cap: u64,
    /// Limits of objects and sizes.
    pub limits: Limits,
    /// Elements in the list of a READ.
    pub max_sge_rd: u32,
    /// Requests in one shared receive queue.
    pub max_srq_wr: u32,
    /// Elements in the list of a shared receive queue's request.
    pub max_srq_sge: u32,
    /// READs and atomics that a queue pair serves at a time.
    pub max_qp_rd_atom: u8,
    /// READs and atomics that a queue pair may have outstanding.
    pub max_qp_init_rd_atom: u8,
    /// READs and atomics that all queue pairs serve at a time.
    pub max_res_rd_atom: u64,
    /// Reach of atomicity.
    pub atomic_cap: AtomicCap,
    /// Entries that a P_Key table can have.
    pub max_pkeys: u16,
    /// Longest delay of an acknowledgement, as a code: 4.096 µs · 2^code.
    pub local_ca_ack_delay: u8,
    /// 1.
    pub phys_port_cnt: u8,
    /// Completion vectors (`num_comp_vectors`): 1, or what a profile says; it is one, really.
    pub num_comp_vectors: u16,
    /// Uses of regions that fetch their pages on demand.
    pub odp: OdpCaps,
    /// Bits of completion timestamps that are valid.
    pub completion_timestamp_mask: u64,
    /// Frequency of the clock of completion timestamps in kHz: the clock counts nanoseconds.
    pub hca_core_clock: u64,
    /// Greatest number of completions that the event of a completion queue can wait for.
    pub max_cq_count: u16,
    /// Longest time that the event of a completion queue can wait, in µs.
    pub max_cq_period: u16,
}

impl DeviceAttr {
    pub(crate) fn new(limits: Limits, node_guid: Guid, sys_image_guid: Guid) -> Self {
        Self {
            fw_ver: env!("CARGO_PKG_VERSION"),
            node_guid,
            sys_image_guid,
            vendor_id: 0xFF_FFFF,
            vendor_part_id: 0,
            hw_ver: 0,
            device_cap_flags: DeviceCaps::all().difference(DeviceCaps::MANAGED_FLOW_STEERING),
            max_mr_size: limits.max_mr_size,
            page_size_cap: 0xFFFF_F000,
            limits,
            max_srq_wr: limits.max_srq_wr,
            max_srq_sge: limits.max_srq_sge,
            max_sge_rd: limits.max_sge.min(limits.max_read_sge),
            max_qp_rd_atom: MAX_RD_ATOMIC,
            max_qp_init_rd_atom: MAX_RD_ATOMIC,
            max_res_rd_atom: limits.max_qp as u64 * u64::from(MAX_RD_ATOMIC),
            atomic_cap: if limits.atomics { AtomicCap::Global } else { AtomicCap::None },
            max_pkeys: PKeyTable::MAX as u16,
            // 134 ms: the thread that answers may have to wait for a processor
            local_ca_ack_delay: 15,
            phys_port_cnt: 1,
            num_comp_vectors: 1,
            odp: OdpCaps::ALL,
            completion_timestamp_mask: u64::MAX,
            hca_core_clock: 1_000_000,
            max_cq_count: u16::MAX,
            max_cq_period: CqModeration::MAX_PERIOD.as_micros() as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_as_verbs_tools_print_them() {
        assert_eq!(
            Guid::of_mac([0x00, 0x11, 0x22, 0x33, 0x44, 0x55]).to_string(),
            "0211:22ff:fe33:4455"
        );
    }
}
