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

/// Options of opening a device; only [`from_environment`](Self::from_environment) reads variables.
#[derive(Debug, Default)]
// independent options, set by name
pub struct OpenOptions {
    /// Threads that move packets: by default the program's calls, else a background thread.
    pub progress: Progress,
    /// Captures every datagram into this pcapng file.
    ///
    /// `%d` is the device's name, `%p` the process number, `%%` a percent sign. The first packet
    /// creates the file. A file written earlier by this process, or by a running one, is kept:
    /// `name.2.pcapng` replaces `name.pcapng`, and so on. A dead process's file is overwritten.
    pub pcap: Option<PathBuf>,
    /// Sends every packet through the network stack, visible to tcpdump, packet filters and `tc`.
    ///
    /// By default, devices of one user on this host use shared memory, and processes of that user
    /// share addresses. With this option the addresses are exclusive.
    pub sockets_only: bool,
    /// Receive buffer of each socket in bytes; default 4 MiB, at most `net.core.rmem_max`.
    pub receive_buffer: Option<usize>,
    /// Number of UDP source ports per address, for multipath networks.
    ///
    /// 0 or 1: port 4791 only. Default 16, on loopback 0. See [`SocketOptions`].
    pub source_ports: Option<usize>,
    /// Datagrams per kernel run at most.
    ///
    /// 1 disables segmentation, for network cards whose numbering differs from Linux. See
    /// [`SocketOptions`].
    pub segments: Option<usize>,
    /// Reliable WRITEs of up to this many packets, without immediate data, leave as WRITE Only
    /// packets.
    ///
    /// First packets are 16 bytes longer than Middle ones and begin a run. Packets of equal length
    /// need fewer calls, which pays for short WRITEs through sockets. If a peer refuses one packet,
    /// the earlier ones are placed; with First nothing would be. Default 0: never split.
    pub write_only_packets: Option<usize>,
    /// Number of shards: engines that share the device's queue pairs, each with a lock, a socket
    /// and a thread.
    ///
    /// For programs with many active queue pairs and threads. A queue pair's completion queues and
    /// SRQ fix its shard; they get shards in turn with their first queue pair. Threads with
    /// separate completion queues do not wait for each other; `rdma_cm` queue pairs use the first
    /// shard. Event loops on completion channels, and channels over several shards, are woken by
    /// the shards' threads.
    ///
    /// 1 to 16, default 1. Raw devices and [`Progress::Manual`] have one. Several shards exclude
    /// memory windows of type 1.
    pub shards: Option<usize>,
    /// Receives for all users' programs on these addresses, as `roce share` does; needs root.
    /// Default: one user only.
    pub receives_for_users: bool,
    /// Congestion control: windows, ECN, DCQCN.
    pub congestion: CongestionConfig,
    /// Makes a region's L_Key and R_Key equal, as on network cards and rxe.
    ///
    /// Different keys, the default, reveal mix-ups and keep the L_Key secret. The C libraries use
    /// equal keys unless `ROCE_DISTINCT_KEYS` is set, neither empty nor 0.
    pub equal_keys: bool,
    /// Observes every datagram.
    pub observer: Option<Box<dyn Observer>>,
    /// Receives the [record of decisions](roce_transport::trace) and keeps the latest per queue
    /// pair; default none.
    ///
    /// The sink runs under the device's lock: it must not wait or use the device.
    pub trace: Trace,
    /// Explains failed calls and queue pairs on stderr: broken rule, peer's response, history,
    /// advice; each cause once.
    ///
    /// Off by default. Slower: every packet is recorded.
    pub explain: Option<ExplainFormat>,
    /// Faults between adapter and link, both directions; default none. Packets then leave singly.
    pub faults: FaultPlan,
    /// Seed of the faults; equal seeds repeat equal faults.
    pub fault_seed: u64,
    /// Late placement and reporting, to find reliance on more than the specification promises.
    ///
    /// Bytes are placed in any order, just before their completion or response; completions and
    /// events wait. Off by default; in C: `roce run --check=reorder,delay`.
    pub late: LateConfig,
    /// P_Key table; default full membership of 0xFFFF.
    pub pkeys: PKeyTable,
    /// Sizes.
    pub limits: Limits,
    /// Adapter to present, whose limits replace `limits`; default none.
    pub profile: Option<Profile>,
    /// Connection management: timeouts and retries.
    pub cm: CmConfig,
    /// Seed of all random numbers; default 32 bytes from the system.
    ///
    /// For tests only: a known seed makes keys predictable.
    pub seed: Option<[u8; 32]>,
}

/// Maximum shards: as many processes can have sockets at an address.
pub(super) const MAX_SHARDS: usize = 16;

impl OpenOptions {
    /// Returns the receive buffer that a device would get now, in bytes, with advice if it is small
    /// by default.
    ///
    /// # Errors
    /// If no socket can be made.
    pub fn granted_receive_buffer(&self) -> io::Result<(usize, Option<String>)> {
        let sockets = self.sockets();
        let granted = sockets.granted_receive_buffer()?;
        Ok((granted, sockets.advice(granted)))
    }

    /// Returns the configured seed, or a random one.
    pub(super) fn random_seed(&self) -> io::Result<[u8; 32]> {
        self.seed.map_or_else(random_seed, Ok)
    }

    /// Selects sharing with others of this host, under this partition.
    pub(super) fn locality(&self, partition: u8) -> Locality {
        match self.progress {
            _ if self.receives_for_users => Locality::Network,
            Progress::Automatic if self.sockets_only && self.shard_count() > 1 => {
                Locality::SharedInProcess { partition }
            }
            _ if self.sockets_only => Locality::Network,
            // a manual program could stall and keep others from their packets
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

/// Returns a random seed.
pub(super) fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(seed)
}
