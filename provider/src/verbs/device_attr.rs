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
    /// EUI-64 of a MAC address.
    pub(crate) const fn of_mac([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
    }
}

impl fmt::Display for Guid {
    /// Format of verbs tools: `0211:22ff:fe33:4455`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f_, g, h] = self.0;
        write!(f, "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f_:02x}:{g:02x}{h:02x}")
    }
}

bitflags! {
    /// Capabilities of a device (`ibv_device_cap_flags`), numbered as in C.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct DeviceCaps: u64 {
        /// Counts packets with a wrong P_Key.
        const BAD_PKEY_CNTR = 1 << 1;
        /// Counts packets with a wrong Q_Key.
        const BAD_QKEY_CNTR = 1 << 2;
        /// Event when a port becomes active.
        const PORT_ACTIVE_EVENT = 1 << 10;
        /// System image GUID.
        const SYS_IMAGE_GUID = 1 << 11;
        /// RNR NAK responses.
        const RC_RNR_NAK_GEN = 1 << 12;
        /// Resizable shared receive queues.
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
        /// Raw packet queue pairs and flows, on raw devices.
        const MANAGED_FLOW_STEERING = 1 << 29;
    }
}

/// Scope of atomic operations (`ibv_atomic_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, derive_more::Display)]
#[non_exhaustive]
pub enum AtomicCap {
    /// No atomics (`IBV_ATOMIC_NONE`): shown by such a [profile](crate::Profile), which still
    /// executes them.
    #[display("ATOMIC_NONE")]
    None,
    /// Atomic among this adapter's operations (`IBV_ATOMIC_HCA`).
    #[display("ATOMIC_HCA")]
    Hca,
    /// Atomic with the host's processors too (`IBV_ATOMIC_GLOB`), if the program uses atomic
    /// accesses.
    #[display("ATOMIC_GLOB")]
    Global,
}

/// On-demand paging capabilities (`ibv_odp_caps`), bits as in C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OdpCaps {
    /// `general_caps`: 1 supported, 2 implicit regions.
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
    const ALL: Self = Self { general: 0b11, rc: 0x3F, uc: 0x27, ud: 0x23, xrc: 0x3F };
}

/// Device attributes (`ibv_device_attr_ex`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Version of this software or a [profile](crate::Profile).
    pub fw_ver: &'static str,
    /// Device GUID: random at each opening, except the local bit.
    pub node_guid: Guid,
    /// Interface GUID: its MAC address as EUI-64, common to its devices.
    pub sys_image_guid: Guid,
    /// 0xFFFFFF, unregistered, or a profile's.
    pub vendor_id: u32,
    /// 0.
    pub vendor_part_id: u32,
    /// 0.
    pub hw_ver: u32,
    /// Capabilities.
    pub device_cap_flags: DeviceCaps,
    /// Maximum region in bytes: the address space.
    pub max_mr_size: u64,
    /// Page size bits: 4 KiB and larger.
    pub page_size_cap: u64,
    /// Limits of objects and sizes.
    pub limits: Limits,
    /// Elements of a READ.
    pub max_sge_rd: u32,
    /// Requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Elements of a shared receive request.
    pub max_srq_sge: u32,
    /// READs and atomics served at a time per queue pair.
    pub max_qp_rd_atom: u8,
    /// READs and atomics outstanding per queue pair.
    pub max_qp_init_rd_atom: u8,
    /// READs and atomics served at a time in all.
    pub max_res_rd_atom: u64,
    /// Scope of atomics.
    pub atomic_cap: AtomicCap,
    /// Maximum entries of a P_Key table.
    pub max_pkeys: u16,
    /// Longest delay of an acknowledgement, as a code: 4.096 µs · 2^code.
    pub local_ca_ack_delay: u8,
    /// 1.
    pub phys_port_cnt: u8,
    /// 1, or a profile's number, though only one exists.
    pub num_comp_vectors: u16,
    /// On-demand paging.
    pub odp: OdpCaps,
    /// Valid bits of completion timestamps.
    pub completion_timestamp_mask: u64,
    /// Timestamp clock in kHz; counts nanoseconds.
    pub hca_core_clock: u64,
    /// Maximum completions per event.
    pub max_cq_count: u16,
    /// Maximum delay of an event in µs.
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
            // 134 ms: the responding thread may wait for a processor
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
