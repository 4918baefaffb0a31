//! Parameters of congestion control.

use core::time::Duration;

/// Congestion control of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CongestionConfig {
    /// Sends reliable connections as ECT(0), to be marked instead of dropped; default true. Traffic
    /// classes with ECN bits stay.
    pub ecn: bool,
    /// Limits of unacknowledged data.
    pub window: WindowConfig,
    /// Reaction to CNPs, default on; `None`: none.
    pub dcqcn: Option<Dcqcn>,
    /// Minimum between CNPs of a queue pair (`min_time_between_cnps`), sent or counted; default 50
    /// µs.
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

/// Limits of unacknowledged bytes, 768 added per packet for headers and receive bookkeeping. One
/// packet always fits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowConfig {
    /// Initial, per queue pair; default 64 KiB.
    pub initial: u64,
    /// Maximum, per queue pair; default 1 MiB.
    pub most: u64,
    /// Initial, per destination; default 128 KiB, within Linux's socket limit of 212,992 bytes.
    pub destination_initial: u64,
    /// Maximum, per destination; default 4 MiB.
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

/// DCQCN reaction point (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM
/// 2015), in adapters' names. Rates in bits/s; the paper's defaults, except `rpg_min_rate`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dcqcn {
    /// Line rate, ending the limit; default 100 Gbit/s.
    pub rpg_max_rate: u64,
    /// Minimum rate; default 10 Mbit/s.
    pub rpg_min_rate: u64,
    /// Rate at the first CNP; default 0: as measured.
    pub rate_to_set_on_first_cnp: u64,
    /// Additive increase; default 40 Mbit/s.
    pub rpg_ai_rate: u64,
    /// Hyper increase; default 400 Mbit/s.
    pub rpg_hai_rate: u64,
    /// Timer of increases; default 55 µs.
    pub rpg_time_reset: Duration,
    /// Bytes between increases; default 10 MB.
    pub rpg_byte_reset: u64,
    /// Increases in fast recovery; default 5.
    pub rpg_threshold: u32,
    /// Percent left by a cut, at least; default 50.
    pub rpg_min_dec_fac: u8,
    /// Minimum between cuts; default 50 µs.
    pub rate_reduce_monitor_period: Duration,
    /// Weight of a CNP, in 1/1024; default 4: 1/256.
    pub dce_tcp_g: u16,
    /// Time without CNPs to shrink the estimate; default 55 µs.
    pub dce_tcp_rtt: Duration,
    /// Initial estimate, in 1/1024; default 1023, about one.
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
