use core::time::Duration;

use crate::defaults::defaults;

defaults! {
    /// Congestion control of an adapter.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub CongestionConfig {
        /// Sends reliable connections as ECT(0), unless the traffic class has ECN bits.
        ecn: bool = true;
        /// Limits of unacknowledged data.
        window: WindowConfig = WindowConfig::default();
        /// Reaction to CNPs, if any.
        dcqcn: Option<Dcqcn> = Some(Dcqcn::default());
        /// Minimum between CNPs of a queue pair (`min_time_between_cnps`), sent or counted.
        np_min_time_between_cnps: Duration = Duration::from_micros(50);
    }
}

defaults! {
    /// Limits of unacknowledged bytes, plus 768 per packet for headers and receive bookkeeping. One
    /// packet always fits.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub WindowConfig {
        /// Initial, per queue pair.
        initial: u64 = 64 << 10;
        /// Maximum, per queue pair.
        most: u64 = 1 << 20;
        /// Initial, per destination; within Linux's socket limit of 212,992 bytes.
        destination_initial: u64 = 128 << 10;
        /// Maximum, per destination.
        destination_most: u64 = 4 << 20;
    }
}

defaults! {
    /// DCQCN reaction point (Zhu et al., SIGCOMM 2015), with the names of adapters. Rates are in
    /// bits/s. Defaults are the paper's, except `rpg_min_rate`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub Dcqcn {
        /// Line rate, which lifts the limit.
        rpg_max_rate: u64 = 100_000_000_000;
        /// Minimum rate.
        rpg_min_rate: u64 = 10_000_000;
        /// Rate at the first CNP; 0: as measured.
        rate_to_set_on_first_cnp: u64 = 0;
        /// Additive increase.
        rpg_ai_rate: u64 = 40_000_000;
        /// Hyper increase.
        rpg_hai_rate: u64 = 400_000_000;
        /// Time between increases.
        rpg_time_reset: Duration = Duration::from_micros(55);
        /// Bytes between increases.
        rpg_byte_reset: u64 = 10_000_000;
        /// Increases in fast recovery.
        rpg_threshold: u32 = 5;
        /// Minimum percentage left by a cut.
        rpg_min_dec_fac: u8 = 50;
        /// Minimum between cuts.
        rate_reduce_monitor_period: Duration = Duration::from_micros(50);
        /// Weight of a CNP, in 1/1024.
        dce_tcp_g: u16 = 4;
        /// Time without CNPs to shrink the estimate.
        dce_tcp_rtt: Duration = Duration::from_micros(55);
        /// Initial estimate, in 1/1024.
        initial_alpha_value: u16 = 1023;
    }
}
