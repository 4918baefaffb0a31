//! Asynchronous events, drop reasons and counters.

use alloc::{format, string::String};
use core::ops::AddAssign;

use derive_more::Display;

use crate::{
    ids::{CqId, Qpn, SrqId},
    wire::{NakCode, Operation, ParseError, Syndrome},
    work::WcStatus,
};

pub use crate::work::Refusal;

/// Asynchronous event (11.6.3), or completion in an armed queue.
///
/// Never `IBV_EVENT_SRQ_ERR`, as a bad request fails its queue pair, or `IBV_EVENT_PATH_MIG(_ERR)`,
/// as RoCE has no path migration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[non_exhaustive]
pub enum Event {
    /// Completion in an armed queue.
    #[display("completion queue {} has completions", _0.0)]
    Completion(CqId),
    /// `IBV_EVENT_COMM_EST`: first packet in RTR.
    #[display("queue pair {_0}: communication established")]
    CommunicationEstablished(Qpn),
    /// `IBV_EVENT_SQ_DRAINED`.
    #[display("queue pair {_0}: send queue drained")]
    SendQueueDrained(Qpn),
    /// `IBV_EVENT_QP_FATAL`: a failure without a completion.
    #[display("queue pair {_0}: fatal error")]
    QpFatal(Qpn),
    /// `IBV_EVENT_QP_REQ_ERR`: an invalid request.
    #[display("queue pair {_0}: the peer made an invalid request: {_1}")]
    QpRequestError(Qpn, Refusal),
    /// `IBV_EVENT_QP_ACCESS_ERR`: a refused memory access.
    #[display("queue pair {_0}: the peer's access to memory was refused: {_1}")]
    QpAccessError(Qpn, Refusal),
    /// `IBV_EVENT_SRQ_LIMIT_REACHED`.
    #[display("shared receive queue {:#x}: fewer requests than its limit", _0.get())]
    SrqLimitReached(SrqId),
    /// `IBV_EVENT_QP_LAST_WQE_REACHED`: in error, the queue pair takes nothing more from SRQs.
    #[display("queue pair {_0}: takes no more requests from its shared receive queue")]
    LastWqeReached(Qpn),
    /// `IBV_EVENT_PKEY_CHANGE`.
    #[display("the P_Key table of port 1 has changed")]
    PKeyChange,
    /// `IBV_EVENT_CQ_ERR`: overflow; its queue pairs are in error.
    #[display("completion queue {} has overflowed", _0.0)]
    CqError(CqId),
    /// `IBV_EVENT_PORT_ACTIVE`.
    #[display("port 1 is active")]
    PortActive,
    /// `IBV_EVENT_PORT_ERR`: link down. Queue pairs keep their state; packets are lost.
    #[display("port 1 is down")]
    PortError,
    /// `IBV_EVENT_GID_CHANGE`. Remaining entries keep their index.
    #[display("the GID table of port 1 has changed")]
    GidChange,
    /// `IBV_EVENT_DEVICE_FATAL`: link lost for good, every queue pair in error.
    #[display("the device has lost its link")]
    DeviceFatal,
}

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal $text:literal;)*) => {
        /// Reason for a drop, counted in [`Counters::dropped`].
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
        #[display("{}", self.text())]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = concat!($text, ".\n")] $(#[doc = $doc])* $variant,)* }

        impl DropReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The counter's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Explanation for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

drop_reasons! {
    TooShort "too_short" "shorter than its headers";
    Padding "bad_padding" "a length that contradicts the pad count";
    /// Reserved opcode or unsupported service.
    UnknownOpcode "unknown_opcode" "unknown opcode";
    /// Transport version other than 0.
    TransportVersion "bad_transport_version" "unknown transport version";
    UnknownQp "unknown_qp" "no such queue pair";
    WrongService "wrong_service" "the opcode is not of the queue pair's transport service";
    WrongRole "wrong_role" "a request to an XRC initiator, or a response to an XRC target";
    QpState "bad_qp_state" "the queue pair's state does not accept the packet";
    SourceAddress "bad_source_address" "not from the connected peer's address";
    DestinationAddress "bad_destination_address" "not to the queue pair's own address";
    RoceVersion "bad_roce_version" "of another version of RoCE than the connection";
    NotAttached "not_attached" "no queue pair is attached to the multicast group";
    PKey "bad_pkey" "partition key does not match";
    QKey "bad_qkey" "queue key does not match";
    Icrc "bad_icrc" "invariant CRC is wrong";
    OutOfSequence "out_of_sequence" "ahead of the expected PSN, and a NAK was already sent";
    /// Duplicate READ or atomic, forgotten or different.
    ReplayMissing "replay_missing" "a duplicate of a request that is too old to repeat";
    ResponderBusy "responder_busy" "too many responses wait to be sent";
    ResponseOutsideWindow "response_outside_window" "a response to a packet that was not sent";
    StaleResponse "stale_response" "a response to a packet that is already acknowledged";
    UnexpectedResponse "unexpected_response" "a response that does not match the oldest request";
    ReadResponseGap "read_response_gap" "a READ response ahead of a missing one";
    PayloadInAcknowledge "payload_in_acknowledge" "an acknowledgement with a payload";
    ReservedSyndrome "reserved_syndrome" "an acknowledgement with a reserved syndrome";
    RecoveryUnderWay "recovery_under_way" "a NAK whose recovery is already under way";
    /// UC: part of a message that lost a packet.
    MessageBroken "message_broken" "part of a message with a missing packet";
    RequestRefused "request_refused" "a request that is not allowed, in a service without \
                                      responses";
    /// UC or UD: no receive request.
    NoReceiveRequest "no_receive_request" "no receive request is posted";
    NotAMad "not_a_mad" "not a MAD of the CM class";
    CmUnknownConnection "cm_unknown_connection" "for a connection that does not exist";
    CmWrongPeer "cm_wrong_peer" "for a connection with another peer";
    /// CM: not in this state, mostly a retransmission.
    CmWrongState "cm_wrong_state" "not valid in the connection's state";
    /// CM: backlog or connection limit.
    CmBacklog "cm_backlog" "more requests than the backlog";
    /// UD: beyond path MTU or receive buffer.
    TooLong "too_long" "longer than the path MTU or the receive buffer";
}

impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::TooShort => Self::TooShort,
            ParseError::Padding => Self::Padding,
            ParseError::Opcode(_) => Self::UnknownOpcode,
            ParseError::Version(_) => Self::TransportVersion,
        }
    }
}

/// Result of handling a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[allow(missing_docs, reason = "a result's comment describes its fields")]
pub enum Disposition {
    /// Request, executed.
    #[display("executed")]
    Executed,
    /// Duplicate request: response sent, not executed.
    #[display("a duplicate, response resent")]
    Duplicate,
    /// Request refused with this NAK or RNR NAK.
    #[display("refused with {_0}: {_1}")]
    Refused(Syndrome, Refusal),
    /// Response that advanced the requester: completed or failed work requests.
    #[display("{}", progress(*completed))]
    Acknowledged { completed: u32 },
    /// NAK: the requester retransmits, waits or fails.
    #[display("the requester acts on {_0}")]
    NakReceived(Syndrome),
    /// Multicast: receiving and attached queue pairs; each refused copy counts as a drop.
    #[display("multicast: received by {taken} of {copies} queue pairs")]
    Replicated { taken: u32, copies: u32 },
    /// Congestion notification.
    #[display("congestion notification")]
    Congestion,
    /// Dropped without a response.
    #[display("dropped: {_0}")]
    Dropped(DropReason),
}

fn progress(completed: u32) -> String {
    match completed {
        0 => "progress".into(),
        1 => "completes a work request".into(),
        more => format!("completes {more} work requests"),
    }
}

macro_rules! totals {
    ($(#[doc = $doc:literal] $name:ident;)*) => {
        /// Totals since creation or since counting began.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Counters {
            $(#[doc = $doc] pub $name: u64,)*
            dropped: [u64; DropReason::ALL.len()],
        }

        impl Default for Counters {
            fn default() -> Self {
                Self { $($name: 0,)* dropped: [0; DropReason::ALL.len()] }
            }
        }

        impl AddAssign<&Counters> for Counters {
            fn add_assign(&mut self, other: &Self) {
                self.add_difference(&Self::default(), other);
            }
        }

        impl Counters {
            fn totals(&self) -> impl Iterator<Item = Counter> {
                [$((stringify!($name), $doc, self.$name),)*]
                    .into_iter()
                    .map(|(name, explanation, value)| Counter { name, explanation: explanation.trim_ascii(), value })
            }

            pub(crate) fn add_difference(&mut self, before: &Self, after: &Self) {
                $(self.$name += after.$name - before.$name;)*
                for &reason in DropReason::ALL {
                    self.dropped[reason as usize] += after.dropped(reason) - before.dropped(reason);
                }
            }
        }
    };
}

totals! {
    /// Packets handed to the link.
    sent_packets;
    /// Datagrams taken from the link, refused ones included.
    received_packets;
    /// Of the packets handed to the link, those to multicast groups.
    sent_multicast_packets;
    /// Octets of the packets handed to the link, from the BTH to the ICRC.
    sent_bytes;
    /// Octets of the datagrams taken from the link, refused ones included.
    received_bytes;
    /// Frames of raw packet queue pairs handed to the link.
    sent_frames;
    /// Frames that raw packet queue pairs have received.
    received_frames;
    /// Request packets retransmitted.
    retransmitted_packets;
    /// ACK timeouts.
    timeouts;
    /// Tail loss probes: last packets retransmitted after a few round trips without a response.
    tail_probes;
    /// PSN sequence error NAKs sent.
    sequence_naks_sent;
    /// PSN sequence error NAKs received.
    sequence_naks_received;
    /// Gaps that an acknowledgement or a READ response showed without a NAK.
    implied_naks;
    /// RNR NAKs sent.
    rnr_naks_sent;
    /// RNR NAKs received.
    rnr_naks_received;
    /// Duplicate requests whose response was resent.
    duplicate_requests;
    /// Packets with a correct ICRC, all header fields known.
    icrc_exact;
    /// Packets with a correct ICRC for one of the possible IPv4 identifications.
    icrc_solved;
    /// Packets from shared memory, whose ICRC is not checked.
    icrc_trusted;
    /// Packets received with "congestion experienced" in their IP header.
    ecn_marked;
    /// Packets received from a socket whose receive buffer was filling.
    receive_buffer_congestion;
    /// Multicast packets received for a group with members.
    multicast_packets;
    /// Packets or copies with a P_Key that does not match (`ibv_port_attr.bad_pkey_cntr`).
    pkey_violations;
    /// Packets or copies with a Q_Key that does not match (`ibv_port_attr.qkey_viol_cntr`).
    qkey_violations;
    /// Congestion notification packets sent.
    cnp_sent;
    /// Congestion notification packets received.
    cnp_received;
    /// WRITE requests of peers, executed; counted at their first packet.
    received_writes;
    /// READ requests of peers, executed.
    received_reads;
    /// Atomic requests of peers, executed.
    received_atomics;
    /// SEND requests completed with success, signaled or not.
    completed_sends;
    /// Receive requests completed with success.
    completed_receives;
    /// Send requests completed in error, flushed ones not included.
    failed_sends;
    /// Receive requests completed in error, flushed ones not included.
    failed_receives;
    /// Send requests flushed from a queue pair in error.
    flushed_sends;
    /// Receive requests flushed from a queue pair in error.
    flushed_receives;
    /// Send requests completed with REM_ACCESS_ERR: the peer refused the memory access.
    remote_access_errors;
    /// Send requests completed with REM_INV_REQ_ERR: the peer refused the request.
    remote_invalid_requests;
    /// Send requests completed with RETRY_EXC_ERR after their last retry.
    retries_exceeded;
    /// Send requests completed with RNR_RETRY_EXC_ERR: the peer posted no receive request.
    rnr_retries_exceeded;
    /// Receive requests completed with LOC_LEN_ERR: the message was longer.
    local_length_errors;
    /// Requests of peers refused for their memory access.
    refused_accesses;
}

/// Counter with name and explanation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Counter {
    /// Name for machines.
    pub name: &'static str,
    /// Explanation for people.
    pub explanation: &'static str,
    /// Count.
    pub value: u64,
}

impl Counters {
    /// Packets refused for this reason.
    #[must_use]
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(crate) const fn count_drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    pub(crate) fn count_failed_send(&mut self, status: WcStatus) {
        match status {
            WcStatus::WrFlushErr => {
                self.flushed_sends += 1;
                return;
            }
            WcStatus::RemAccessErr => self.remote_access_errors += 1,
            WcStatus::RemInvReqErr => self.remote_invalid_requests += 1,
            WcStatus::RetryExcErr => self.retries_exceeded += 1,
            WcStatus::RnrRetryExcErr => self.rnr_retries_exceeded += 1,
            _ => {}
        }
        self.failed_sends += 1;
    }

    pub(crate) fn count_failed_receive(&mut self, status: WcStatus) {
        match status {
            WcStatus::WrFlushErr => {
                self.flushed_receives += 1;
                return;
            }
            WcStatus::LocLenErr => self.local_length_errors += 1,
            _ => {}
        }
        self.failed_receives += 1;
    }

    pub(crate) const fn count_sent(&mut self, packets: u64, length: usize) {
        self.sent_packets += packets;
        self.sent_bytes += packets * length as u64;
    }

    pub(crate) fn count_request(&mut self, operation: Operation, disposition: Disposition) {
        use Operation as Op;
        match disposition {
            Disposition::Executed => {}
            Disposition::Refused(Syndrome::Nak(NakCode::RemoteAccessError), _) => {
                self.refused_accesses += 1;
                return;
            }
            _ => return,
        }
        match operation {
            Op::WriteFirst | Op::WriteOnly | Op::WriteOnlyImm | Op::AtomicWrite => {
                self.received_writes += 1;
            }
            Op::ReadRequest => self.received_reads += 1,
            Op::CmpSwap | Op::FetchAdd => self.received_atomics += 1,
            _ => {}
        }
    }

    /// Every counter in a fixed order, drops last.
    pub fn iter(&self) -> impl Iterator<Item = Counter> {
        let drops = DropReason::ALL.iter().map(|&reason| (reason, self.dropped(reason)));
        self.totals().chain(drops.map(|(reason, value)| Counter {
            name: reason.name(),
            explanation: reason.text(),
            value,
        }))
    }
}
