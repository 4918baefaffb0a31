//! Options of opening a device.

use std::{io, path::PathBuf};

use roce_transport::{
    adapter::{Limits, PKeyTable},
    cm::CmConfig,
    congestion::CongestionConfig,
    trace::Trace,
    work::LateConfig,
};

use crate::{
    diagnosis::ExplainFormat,
    engine::Progress,
    fabric::FaultPlan,
    link::{Locality, Observer, SocketOptions},
    profile::Profile,
};

/// Options of opening a device.
#[derive(Debug, Default)]
pub struct OpenOptions {
    /// Threads that move packets: by default the program's calls, else a background thread.
    pub progress: Progress,
    /// Captures every datagram into this pcapng file, created by the first packet.
    ///
    /// `%d` is the device's name, `%p` the process ID, `%%` a percent sign. A file of this or
    /// another running process is kept: the next is `name.2.pcapng`. A dead process's file is
    /// overwritten.
    pub pcap: Option<PathBuf>,
    /// Sends every packet through the network stack, visible to tcpdump, packet filters and `tc`.
    ///
    /// By default, a user's devices on one host use shared memory and share addresses. This option
    /// makes addresses exclusive.
    pub sockets_only: bool,
    /// Receive buffer of each socket in bytes; default 4 MiB, at most `net.core.rmem_max`.
    pub receive_buffer: Option<usize>,
    /// Number of UDP source ports per address, for multipath networks.
    ///
    /// 0 or 1: port 4791 only. Default 16, on loopback 0.
    pub source_ports: Option<usize>,
    /// Maximum datagrams per run for the kernel. 1 disables segmentation, for network cards that
    /// number datagrams unlike Linux.
    pub segments: Option<usize>,
    /// Splits reliable WRITEs of up to this many packets, without immediate data, into WRITE Only
    /// packets; default 0.
    ///
    /// Helps short WRITEs through sockets: a First packet is 16 bytes longer than Middle packets
    /// and begins a run. If a peer refuses a packet, earlier packets stay placed, unlike with
    /// First.
    pub write_only_packets: Option<usize>,
    /// Number of shards, 1 to 16, default 1: engines with a lock, a socket and a thread each.
    ///
    /// For programs with many active queue pairs and threads. Completion queues and SRQs get shards
    /// in turn with their first queue pair, and fix the shard of further queue pairs. `rdma_cm`
    /// queue pairs use the first shard. The shards' threads wake event loops on completion
    /// channels, and channels over several shards.
    ///
    /// Raw devices and [`Progress::Manual`] have one shard. Several shards exclude memory windows
    /// of type 1.
    pub shards: Option<usize>,
    /// Receives for all users' programs, like `roce share`; needs root.
    pub receives_for_users: bool,
    /// Congestion control: windows, ECN, DCQCN.
    pub congestion: CongestionConfig,
    /// Makes a region's L_Key and R_Key equal, as on network cards and rxe.
    ///
    /// The C libraries use equal keys unless `ROCE_DISTINCT_KEYS` is on. Different keys, the
    /// default, reveal mix-ups and keep the L_Key secret.
    pub equal_keys: bool,
    /// Observes every datagram.
    pub observer: Option<Box<dyn Observer>>,
    /// Receives the [record of decisions](roce_transport::trace) and keeps the latest per queue
    /// pair; default none.
    ///
    /// The sink runs under the device's lock: it must not wait or use the device.
    pub trace: Trace,
    /// Explains failed calls and queue pairs on stderr, each cause once; off by default.
    ///
    /// Slower: every packet is recorded.
    pub explain: Option<ExplainFormat>,
    /// Faults between adapter and link, both directions; default none. Packets then leave singly.
    pub faults: FaultPlan,
    /// Seed of the faults.
    pub fault_seed: u64,
    /// Late placement and completion, to find reliance on more than the specification promises.
    ///
    /// Off by default; in C: `roce run --check=reorder,delay`.
    pub late: LateConfig,
    /// P_Key table; default full membership of 0xFFFF.
    pub pkeys: PKeyTable,
    /// Sizes.
    pub limits: Limits,
    /// Adapter to present, whose limits replace `limits`; default none.
    pub profile: Option<Profile>,
    /// Connection management: timeouts and retries.
    pub cm: CmConfig,
    /// Seed of all random numbers, for tests only: a known seed makes keys predictable.
    pub seed: Option<[u8; 32]>,
}

/// As many processes can have sockets at an address.
pub(super) const MAX_SHARDS: usize = 16;

impl OpenOptions {
    /// Receive buffer that a device would get now, in bytes, with advice if small.
    ///
    /// # Errors
    /// If no socket can be made.
    pub fn granted_receive_buffer(&self) -> io::Result<(usize, Option<String>)> {
        let sockets = self.sockets();
        let granted = sockets.granted_receive_buffer()?;
        Ok((granted, sockets.advice(granted)))
    }

    pub(super) fn random_seed(&self) -> io::Result<[u8; 32]> {
        self.seed.map_or_else(random_seed, Ok)
    }

    pub(super) fn locality(&self, partition: u8) -> Locality {
        match self.progress {
            _ if self.receives_for_users => Locality::Network,
            Progress::Automatic if self.sockets_only && self.shard_count() > 1 => {
                Locality::SharedInProcess { partition }
            }
            _ if self.sockets_only => Locality::Network,
            // a stalled program would keep others from their packets
            Progress::Manual => Locality::SharedMemory,
            Progress::Automatic => Locality::SharedAddress { partition },
        }
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.unwrap_or(1).max(1)
    }

    pub(super) fn sockets(&self) -> SocketOptions {
        SocketOptions {
            receive_buffer: self.receive_buffer,
            source_ports: self.source_ports,
            segments: self.segments,
            receives_for_users: self.receives_for_users,
        }
    }
}

pub(super) fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(seed)
}
