//! What a device tells of itself.

use std::fmt;

use roce_transport::{
    adapter::{Limits, PKeyTable},
    qp::MAX_RD_ATOMIC,
    work::CqModeration,
};

/// A globally unique identifier: 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Guid(pub [u8; 8]);

impl Guid {
    /// That of a network card's address, as it is extended to 64 bits.
    pub(crate) const fn of_mac([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
    }
}

impl fmt::Display for Guid {
    /// As verbs tools print it: `0211:22ff:fe33:4455`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f_, g, h] = self.0;
        write!(f, "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f_:02x}:{g:02x}{h:02x}")
    }
}

/// How far the atomicity of atomic operations reaches (`ibv_atomic_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum AtomicCap {
    /// Against everything, this host's processors included (`IBV_ATOMIC_GLOB`): peers' operations are the processor's own on
    /// the same words, as long as the program also uses atomic accesses.
    Global,
}

impl fmt::Display for AtomicCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("ATOMIC_GLOB"),
        }
    }
}

/// What a device tells of itself (`ibv_device_attr_ex`). Everything of which there is only so much is in [`limits`](Self::limits),
/// and is refused beyond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceAttr {
    /// The version of this software.
    pub fw_ver: &'static str,
    /// Different for every opened device, also of one interface: random, but for the mark of a local assignment.
    pub node_guid: Guid,
    /// The same for everything on one network interface: its MAC address, extended to 64 bits.
    pub sys_image_guid: Guid,
    /// 0xFFFFFF: no vendor has been registered.
    pub vendor_id: u32,
    /// 0.
    pub vendor_part_id: u32,
    /// 0.
    pub hw_ver: u32,
    /// Bytes of a memory region: bounded by the address space alone.
    pub max_mr_size: u64,
    /// Sizes of pages, one bit each: 4 KiB and every larger one.
    pub page_size_cap: u64,
    /// How many of everything.
    pub limits: Limits,
    /// READs and atomics that a queue pair serves at once.
    pub max_qp_rd_atom: u8,
    /// READs and atomics that a queue pair may have outstanding.
    pub max_qp_init_rd_atom: u8,
    /// READs and atomics that all queue pairs serve at once.
    pub max_res_rd_atom: u64,
    /// How far atomicity reaches.
    pub atomic_cap: AtomicCap,
    /// Entries that a P_Key table can have.
    pub max_pkeys: u16,
    /// How long an acknowledgement may take here, as a code: 4.096 µs · 2^code.
    pub local_ca_ack_delay: u8,
    /// 1.
    pub phys_port_cnt: u8,
    /// The bits of completion timestamps that count.
    pub completion_timestamp_mask: u64,
    /// The frequency of the clock of completion timestamps, in kHz: it counts nanoseconds.
    pub hca_core_clock: u64,
    /// The greatest count that a completion queue's events can wait for.
    pub max_cq_count: u16,
    /// The longest time that they can wait, in µs.
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
            max_mr_size: u64::MAX,
            page_size_cap: 0xFFFF_F000,
            limits,
            max_qp_rd_atom: MAX_RD_ATOMIC,
            max_qp_init_rd_atom: MAX_RD_ATOMIC,
            max_res_rd_atom: limits.max_qp as u64 * u64::from(MAX_RD_ATOMIC),
            atomic_cap: AtomicCap::Global,
            max_pkeys: PKeyTable::MAX as u16,
            // 134 ms: the thread that answers may have to wait for a processor
            local_ca_ack_delay: 15,
            phys_port_cnt: 1,
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
        assert_eq!(Guid::of_mac([0x00, 0x11, 0x22, 0x33, 0x44, 0x55]).to_string(), "0211:22ff:fe33:4455");
    }
}
