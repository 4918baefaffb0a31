use super::{
    fields::{Fields, Writer},
    private_data::PrivateData,
    unused::Unused,
};
use crate::{addr::QKey, ids::Qpn, psn::Psn};

/// Reply to request for communication (12.6.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rep {
    /// Replier's ID.
    pub local_id: u32,
    /// Requester's ID.
    pub remote_id: u32,
    /// Replier's queue pair.
    pub local_qpn: Qpn,
    /// Fields without meaning on RoCE.
    pub unused: Unused,
    /// First PSN that the replier expects.
    pub starting_psn: Psn,
    /// READs and atomics served at once.
    pub responder_resources: u8,
    /// READs and atomics outstanding.
    pub initiator_depth: u8,
    /// Replier's ACK delay, code.
    pub target_ack_delay: u8,
    /// Alternate path: 0, [`NO_FAILOVER`](Self::NO_FAILOVER), or 2.
    pub failover: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// RNR retry counter for the requester.
    pub rnr_retry: u8,
    /// Shared receive queue.
    pub srq: bool,
    /// GUID of the replier's adapter.
    pub local_ca_guid: u64,
    /// Private data.
    pub private_data: PrivateData<{ Rep::PRIVATE_DATA }>,
}

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const REMOTE_ID: usize = 4;
    pub(super) const LOCAL_QKEY: usize = 8;
    pub(super) const LOCAL_QPN: usize = 12;
    pub(super) const VENDOR_ID_HIGH: usize = 15;
    pub(super) const LOCAL_EECN: usize = 16;
    pub(super) const VENDOR_ID_MIDDLE: usize = 19;
    pub(super) const STARTING_PSN: usize = 20;
    pub(super) const VENDOR_ID_LOW: usize = 23;
    pub(super) const RESPONDER_RESOURCES: usize = 24;
    pub(super) const INITIATOR_DEPTH: usize = 25;
    /// Target ACK delay (5 bits), failover (2), flow control (1).
    pub(super) const TARGET_ACK_DELAY: usize = 26;
    /// RNR retry count (3 bits), SRQ (1).
    pub(super) const RNR_RETRY: usize = 27;
    pub(super) const LOCAL_CA_GUID: usize = 28;
    pub(super) const PRIVATE_DATA: usize = 36;
}

impl Rep {
    /// No alternate paths.
    pub const NO_FAILOVER: u8 = 1;
    /// In bytes.
    pub const PRIVATE_DATA: usize = 196;

    pub(super) const ATTRIBUTE: u16 = 0x13;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        let vendor_id = [at::VENDOR_ID_HIGH, at::VENDOR_ID_MIDDLE, at::VENDOR_ID_LOW];
        let [high, middle, low] = vendor_id.map(|at| b.u8(at));
        Self {
            local_id: b.u32(at::LOCAL_ID),
            remote_id: b.u32(at::REMOTE_ID),
            local_qpn: Qpn::new(b.u24(at::LOCAL_QPN)),
            unused: Unused {
                local_qkey: QKey(b.u32(at::LOCAL_QKEY)),
                local_eecn: b.u24(at::LOCAL_EECN),
                vendor_id: u32::from_be_bytes([0, high, middle, low]),
            },
            starting_psn: Psn::new(b.u24(at::STARTING_PSN)),
            responder_resources: b.u8(at::RESPONDER_RESOURCES),
            initiator_depth: b.u8(at::INITIATOR_DEPTH),
            target_ack_delay: b.u8(at::TARGET_ACK_DELAY) >> 3,
            failover: b.u8(at::TARGET_ACK_DELAY) >> 1 & 3,
            flow_control: b.u8(at::TARGET_ACK_DELAY) & 1 != 0,
            rnr_retry: b.u8(at::RNR_RETRY) >> 5,
            srq: b.u8(at::RNR_RETRY) & 0x10 != 0,
            local_ca_guid: b.u64(at::LOCAL_CA_GUID),
            private_data: b.data(at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        let [_, high, middle, low] = self.unused.vendor_id.to_be_bytes();
        w.u32(at::LOCAL_ID, self.local_id);
        w.u32(at::REMOTE_ID, self.remote_id);
        w.u32(at::LOCAL_QKEY, self.unused.local_qkey.0);
        w.u24(at::LOCAL_QPN, self.local_qpn.get());
        w.u8(at::VENDOR_ID_HIGH, high);
        w.u24(at::LOCAL_EECN, self.unused.local_eecn);
        w.u8(at::VENDOR_ID_MIDDLE, middle);
        w.u24(at::STARTING_PSN, self.starting_psn.get());
        w.u8(at::VENDOR_ID_LOW, low);
        w.u8(at::RESPONDER_RESOURCES, self.responder_resources);
        w.u8(at::INITIATOR_DEPTH, self.initiator_depth);
        let failover = (self.failover & 3) << 1 | u8::from(self.flow_control);
        w.u8(at::TARGET_ACK_DELAY, self.target_ack_delay << 3 | failover);
        w.u8(at::RNR_RETRY, self.rnr_retry << 5 | u8::from(self.srq) << 4);
        w.u64(at::LOCAL_CA_GUID, self.local_ca_guid);
        w.put(at::PRIVATE_DATA, &self.private_data.0);
    }
}
