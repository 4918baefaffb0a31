//! Parameters of congestion control.

use core::time::Duration;

/// Congestion control of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CongestionConfig {
    /// Reliable connections mark what they send as ECN-capable, ECT(0), so that a switch whose
    /// queue grows marks it instead of dropping it. On by default. A traffic class with other ECN
    /// bits leaves as it is.
    pub ecn: bool,
    /// Limits of what may wait for an acknowledgement.
    pub window: WindowConfig,
    /// Reaction to notifications of the peer; `None`: the rate is never limited. On by default.
    pub dcqcn: Option<Dcqcn>,
    /// `min_time_between_cnps`: a peer is notified at most once in this time for each queue pair,
    /// and of its own notifications no more than that count. 50 µs by default.
    pub np_min_time_between_cnps: Duration,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            ecn: true,
            window: WindowConfig::default(),
            dcqcn: Some(Dcqcn::default()),
            np_min_time_between_cnps: Duration::from_micros(50),
        }
    }
}

/// Limits of what may wait for an acknowledgement, in bytes. A packet counts with its payload and
/// 768 bytes for headers and the receiver's bookkeeping. One packet may always be under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowConfig {
    /// Of a queue pair, at first. 64 KiB by default.
    pub initial: u64,
    /// Of a queue pair, at most. 1 MiB by default.
    pub most: u64,
    /// Of all queue pairs with the same destination together, at first. 128 KiB by default, which a
    /// socket of Linux' usual limit, 212,992 bytes, holds.
    pub destination_initial: u64,
    /// The same, at most. 4 MiB by default.
    pub destination_most: u64,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            initial: 64 << 10,
            most: 1 << 20,
            destination_initial: 128 << 10,
            destination_most: 4 << 20,
        }
    }
}

/// Parameters of DCQCN's reaction point (Zhu et al., "Congestion Control for Large-Scale RDMA
/// Deployments", SIGCOMM 2015), under the names of network adapters. Rates are in bits per second.
/// The defaults are the paper's, but for `rpg_min_rate`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dcqcn {
    /// Line rate: a limit that has grown up to here is lifted. 100 Gbit/s by default.
    pub rpg_max_rate: u64,
    /// The limit is never lower. 10 Mbit/s by default.
    pub rpg_min_rate: u64,
    /// Rate that the first notification finds; 0, the default: the one that was measured.
    pub rate_to_set_on_first_cnp: u64,
    /// Additive increase. 40 Mbit/s by default.
    pub rpg_ai_rate: u64,
    /// Hyper increase. 400 Mbit/s by default.
    pub rpg_hai_rate: u64,
    /// Time between two increases by the timer. 55 µs by default.
    pub rpg_time_reset: Duration,
    /// Bytes between two increases by the byte counter. 10 MB by default.
    pub rpg_byte_reset: u64,
    /// Increases of either kind that only recover the rate before the cut. 5 by default.
    pub rpg_threshold: u32,
    /// Least part of the rate that a cut leaves, in percent. 50 by default.
    pub rpg_min_dec_fac: u8,
    /// Least time between two cuts. 50 µs by default.
    pub rate_reduce_monitor_period: Duration,
    /// Weight of a notification in the estimate of congestion, in 1/1024. 4 by default: 1/256.
    pub dce_tcp_g: u16,
    /// Time without a notification after which the estimate shrinks. 55 µs by default.
    pub dce_tcp_rtt: Duration,
    /// The estimate before the first notification, in 1/1024. 1023 by default, as good as one.
    pub initial_alpha_value: u16,
}

impl Default for Dcqcn {
    fn default() -> Self {
        Self {
            rpg_max_rate: 100_000_000_000,
            rpg_min_rate: 10_000_000,
            rate_to_set_on_first_cnp: 0,
            rpg_ai_rate: 40_000_000,
            rpg_hai_rate: 400_000_000,
            rpg_time_reset: Duration::from_micros(55),
            rpg_byte_reset: 10_000_000,
            rpg_threshold: 5,
            rpg_min_dec_fac: 50,
            rate_reduce_monitor_period: Duration::from_micros(50),
            dce_tcp_g: 4,
            dce_tcp_rtt: Duration::from_micros(55),
            initial_alpha_value: 1023,
        }
    }
}
