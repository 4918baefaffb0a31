//! Port counters named as in `/sys/class/infiniband`.
//!
//! Sources: Linux (InfiniBand volume 1, 16.1.3.5, `PortCounters`), NVIDIA's `mlx5`, `rxe`.
//! Impossible events, such as cable errors, stay 0.

use roce_transport::event::{Counters, DropReason};

use crate::{LinkCounters, Profile};

/// Counter of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortCounter {
    /// `counters` or `hw_counters`.
    pub directory: &'static str,
    /// File name.
    pub name: &'static str,
    /// Value.
    pub value: u64,
}

const STANDARD: &str = "counters";
const HARDWARE: &str = "hw_counters";

type Value = fn(&Counters, &LinkCounters) -> u64;

const NOTHING: Value = |_, _| 0;

/// Data in units of 4 octets.
const PORT: [(&str, Value); 21] = [
    ("port_xmit_data", |all, _| all.sent_bytes / 4),
    ("port_xmit_packets", |all, _| all.sent_packets),
    ("port_rcv_data", |all, _| all.received_bytes / 4),
    ("port_rcv_packets", |all, _| all.received_packets),
    ("unicast_xmit_packets", |all, _| all.sent_packets - all.sent_multicast_packets),
    ("unicast_rcv_packets", |all, _| all.received_packets - all.multicast_packets),
    ("multicast_xmit_packets", |all, _| all.sent_multicast_packets),
    ("multicast_rcv_packets", |all, _| all.multicast_packets),
    ("port_rcv_errors", |all, link| malformed(all) + link.receive_errors),
    ("port_rcv_constraint_errors", |all, _| all.dropped(DropReason::PKey)),
    ("port_xmit_discards", |_, link| link.send_errors),
    ("port_xmit_wait", |_, link| link.full),
    ("excessive_buffer_overrun_errors", |_, link| link.socket_drops),
    ("VL15_dropped", NOTHING),
    ("link_downed", NOTHING),
    ("link_error_recovery", NOTHING),
    ("local_link_integrity_errors", NOTHING),
    ("port_rcv_remote_physical_errors", NOTHING),
    ("port_rcv_switch_relay_errors", NOTHING),
    ("port_xmit_constraint_errors", NOTHING),
    ("symbol_error", NOTHING),
];

const MLX5: [(&str, Value); 30] = [
    ("duplicate_request", |all, _| all.duplicate_requests),
    ("implied_nak_seq_err", |all, _| all.implied_naks),
    ("local_ack_timeout_err", |all, _| all.timeouts),
    ("np_cnp_sent", |all, _| all.cnp_sent),
    ("np_ecn_marked_roce_packets", |all, _| all.ecn_marked),
    ("out_of_buffer", |all, _| all.rnr_naks_sent + all.dropped(DropReason::NoReceiveRequest)),
    ("out_of_sequence", |all, _| all.sequence_naks_sent + all.dropped(DropReason::OutOfSequence)),
    ("packet_seq_err", |all, _| all.sequence_naks_received),
    ("req_cqe_error", |all, _| all.failed_sends + all.flushed_sends),
    ("req_cqe_flush_error", |all, _| all.flushed_sends),
    ("req_remote_access_errors", |all, _| all.remote_access_errors),
    ("req_remote_invalid_request", |all, _| all.remote_invalid_requests),
    ("req_transport_retries_exceeded", |all, _| all.retries_exceeded),
    ("resp_cqe_error", |all, _| all.failed_receives + all.flushed_receives),
    ("resp_cqe_flush_error", |all, _| all.flushed_receives),
    ("resp_local_length_error", |all, _| all.local_length_errors),
    ("resp_remote_access_errors", |all, _| all.refused_accesses),
    ("rnr_nak_retry_err", |all, _| all.rnr_naks_received),
    ("roce_adp_retrans", NOTHING),
    ("roce_adp_retrans_to", NOTHING),
    ("roce_slow_restart", NOTHING),
    ("roce_slow_restart_cnps", NOTHING),
    ("roce_slow_restart_trans", NOTHING),
    ("rp_cnp_handled", |all, _| all.cnp_received),
    ("rp_cnp_ignored", NOTHING),
    ("rx_atomic_requests", |all, _| all.received_atomics),
    ("rx_dct_connect", NOTHING),
    ("rx_icrc_encapsulated", |all, _| all.dropped(DropReason::Icrc)),
    ("rx_read_requests", |all, _| all.received_reads),
    ("rx_write_requests", |all, _| all.received_writes),
];

const RXE: [(&str, Value); 15] = [
    ("ack_deferred", NOTHING),
    ("completer_retry_err", |all, _| all.sequence_naks_received + all.implied_naks + all.timeouts),
    ("duplicate_request", |all, _| all.duplicate_requests),
    ("link_downed", NOTHING),
    ("out_of_seq_request", |all, _| {
        all.sequence_naks_sent + all.dropped(DropReason::OutOfSequence)
    }),
    ("rcvd_pkts", |all, _| all.received_packets),
    ("rcvd_rnr_err", |all, _| all.rnr_naks_received),
    ("rcvd_seq_err", |all, _| all.sequence_naks_received),
    ("rdma_recvs", |all, _| all.completed_receives),
    ("rdma_sends", |all, _| all.completed_sends),
    ("retry_exceeded_err", |all, _| all.retries_exceeded),
    ("retry_rnr_exceeded_err", |all, _| all.rnr_retries_exceeded),
    ("send_err", |_, link| link.send_errors),
    ("send_rnr_err", |all, _| all.rnr_naks_sent),
    ("sent_pkts", |all, _| all.sent_packets),
];

fn malformed(all: &Counters) -> u64 {
    use DropReason::{Icrc, Padding, TooShort, TransportVersion, UnknownOpcode};
    let reasons = [TooShort, Padding, UnknownOpcode, TransportVersion, Icrc];
    reasons.map(|reason| all.dropped(reason)).iter().sum()
}

/// Counters that the profile's driver shows (`mlx5`, `rxe` or none); without a profile, all.
#[must_use]
pub fn port_counters(
    profile: Option<&Profile>,
    counters: &Counters,
    link: &LinkCounters,
) -> Vec<PortCounter> {
    let driver = profile.map(|profile| profile.text("device.counters").unwrap_or_default());
    let (port, mlx5, rxe): (&[_], &[_], &[_]) = match driver {
        None => (&PORT, &MLX5, &RXE),
        Some("mlx5") => (&PORT, &MLX5, &[]),
        Some("rxe") => (&[], &[], &RXE),
        Some(_) => (&[], &[], &[]),
    };
    let both = rxe.iter().filter(|(name, _)| mlx5.iter().all(|(other, _)| other != name));
    let in_directory = |directory, name, value: Value| PortCounter {
        directory,
        name,
        value: value(counters, link),
    };
    let standard = port.iter().map(|&(name, value)| in_directory(STANDARD, name, value));
    let hardware =
        mlx5.iter().chain(both).map(|&(name, value)| in_directory(HARDWARE, name, value));
    standard.chain(hardware).collect()
}
