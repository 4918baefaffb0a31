use super::{
    fields::{At, Bits, Field, Split, layout},
    private_data::PrivateData,
    unused::Unused,
};
use crate::{ids::Qpn, psn::Psn};

layout! {
    /// Reply to request for communication (12.6.8).
    #[derive(Default)]
    Rep {
        /// Replier's ID.
        local_id: u32 = At(0);
        /// Requester's ID.
        remote_id: u32 = At(4);
        /// Replier's queue pair.
        local_qpn: Qpn = Bits(12, 31, 8);
        /// Fields without meaning on RoCE.
        unused: Unused = (At(8), Bits(16, 31, 8), Split([15, 19, 23]));
        /// First PSN that the replier expects.
        starting_psn: Psn = Bits(20, 31, 8);
        /// READs and atomics served at once.
        responder_resources: u8 = At(24);
        /// READs and atomics outstanding.
        initiator_depth: u8 = At(25);
        /// Replier's ACK delay, code.
        target_ack_delay: u8 = Bits(24, 15, 11);
        /// Alternate path: 0, [`NO_FAILOVER`](Self::NO_FAILOVER), or 2.
        failover: u8 = Bits(24, 10, 9);
        /// End-to-end flow control.
        flow_control: bool = Bits(24, 8, 8);
        /// RNR retry counter for the requester.
        rnr_retry: u8 = Bits(24, 7, 5);
        /// Shared receive queue.
        srq: bool = Bits(24, 4, 4);
        /// GUID of the replier's adapter.
        local_ca_guid: u64 = At(28);
        /// Private data.
        private_data: PrivateData<{ Rep::PRIVATE_DATA }> = At(36);
    }
}

impl Rep {
    /// No alternate paths.
    pub const NO_FAILOVER: u8 = 1;
    /// In bytes.
    pub const PRIVATE_DATA: usize = 196;
}
