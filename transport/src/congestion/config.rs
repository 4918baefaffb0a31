use core::time::Duration;

/// Congestion control of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CongestionConfig {
    /// Sends reliable connections as ECT(0), unless the traffic class has ECN bits.
    pub ecn: bool,
    /// Limits of unacknowledged data.
    pub window: WindowConfig,
    /// Reaction to CNPs, if any.
    pub dcqcn: Option<Dcqcn>,
    /// Minimum between CNPs of a queue pair (`min_time_between_cnps`), sent or counted.
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

/// Limits of unacknowledged bytes, plus 768 per packet for headers and receive bookkeeping. One
/// packet always fits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowConfig {
    /// Initial, per queue pair.
    pub initial: u64,
    /// Maximum, per queue pair.
    pub most: u64,
    /// Initial, per destination; within Linux's socket limit of 212,992 bytes.
    pub destination_initial: u64,
    /// Maximum, per destination.
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

/// DCQCN reaction point (Zhu et al., SIGCOMM 2015), with the names of adapters. Rates are in
/// bits/s. Defaults are the paper's, except `rpg_min_rate`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dcqcn {
    /// Line rate, which lifts the limit.
    pub rpg_max_rate: u64,
    /// Minimum rate.
    pub rpg_min_rate: u64,
    /// Rate at the first CNP; 0: as measured.
    pub rate_to_set_on_first_cnp: u64,
    /// Additive increase.
    pub rpg_ai_rate: u64,
    /// Hyper increase.
    pub rpg_hai_rate: u64,
    /// Time between increases.
    pub rpg_time_reset: Duration,
    /// Bytes between increases.
    pub rpg_byte_reset: u64,
    /// Increases in fast recovery.
    pub rpg_threshold: u32,
    /// Minimum percentage left by a cut.
    pub rpg_min_dec_fac: u8,
    /// Minimum between cuts.
    pub rate_reduce_monitor_period: Duration,
    /// Weight of a CNP, in 1/1024.
    pub dce_tcp_g: u16,
    /// Time without CNPs to shrink the estimate.
    pub dce_tcp_rtt: Duration,
    /// Initial estimate, in 1/1024.
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
