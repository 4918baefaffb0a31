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

/// Options of opening a device. [`from_environment`](Self::from_environment) has those that
/// variables ask for; nothing else reads them.
#[derive(Debug, Default)]
// Each field is an option by itself, which programs set by its name; none depends on another.
pub struct OpenOptions {
    /// The threads that move packets. By default the program's calls do, and a background thread
    /// when there are none.
    pub progress: Progress,
    /// Captures every datagram into this pcapng file.
    ///
    /// In the name, `%d` is the device's name, `%p` the number of the process, `%%` a percent sign.
    /// The file is made with the first packet. A file that this process has written before, or that
    /// another that still runs is writing, is not touched: then it is `name.2.pcapng` instead of
    /// `name.pcapng`, and so on. One of a process that has ended is overwritten.
    pub pcap: Option<PathBuf>,
    /// Every packet takes the network stack, where tcpdump, packet filters and `tc` meet it.
    /// Without it, packets between devices of the same user on this host go through memory that the
    /// two processes share. The device then has its addresses for itself, while others share them
    /// with whatever other process of the same user opens them.
    pub sockets_only: bool,
    /// Size of each socket's receive buffer in bytes, 4 MiB by default; the kernel grants at most
    /// `net.core.rmem_max`.
    pub receive_buffer: Option<usize>,
    /// Number of UDP source ports of each address that data leaves from, for networks with several
    /// paths. With 0 or 1 all leaves from port 4791. The default is 16, on loopback 0. See
    /// [`SocketOptions`].
    pub source_ports: Option<usize>,
    /// The most datagrams that are handed to the kernel as one run. 1 has them leave singly, for
    /// network cards that number the parts of a run otherwise than Linux does. See
    /// [`SocketOptions`].
    pub segments: Option<usize>,
    /// Reliable WRITEs of up to so many packets, without immediate data, leave as WRITE Only
    /// packets instead of First, Middle and Last. The first packet of a WRITE is 16 bytes longer
    /// than the others and begins a run. Packets of equal length leave with fewer calls, which pays
    /// for WRITEs of a few packets through sockets. A peer that refuses one of these packets has
    /// placed those before it; of a WRITE with First it would have placed nothing. The default is
    /// 0: no WRITE is split.
    pub write_only_packets: Option<usize>,
    /// Number of shards: engines that share the device's queue pairs, each with a lock, a socket
    /// and a thread of its own. They are for programs whose threads use many queue pairs at once. A
    /// queue pair is in the shard of its completion queues and of its shared receive queue. These
    /// get a shard in turn with their first queue pair. Queue pairs of `rdma_cm` ids are in the
    /// first. So threads that each have a completion queue of their own do not wait for each other,
    /// while queue pairs that complete in one queue are in one shard. A program that waits for
    /// completion channels in an event loop, or for one whose queues are in several shards, is
    /// woken by the shards' threads.
    ///
    /// 1 to 16; by default 1. Raw devices, and those that are moved by hand ([`Progress::Manual`]),
    /// have one. With several there are no memory windows of type 1.
    pub shards: Option<usize>,
    /// Receives for programs of all users of this host, as `roce share` does: each that opens one
    /// of the device's addresses gets what is for it. Needs root. By default no other user's
    /// program can have the addresses.
    pub receives_for_users: bool,
    /// How much may be on its way, and how fast: windows, ECN, DCQCN.
    pub congestion: CongestionConfig,
    /// The L_Key and the R_Key of a region are equal, as on network cards and rxe. By default they
    /// differ, so that who mixes them up notices, and who learns the one does not know the other.
    /// In the C libraries they are equal unless the variable `ROCE_DISTINCT_KEYS` of the
    /// environment is anything but empty or 0.
    pub equal_keys: bool,
    /// Sees every datagram.
    pub observer: Option<Box<dyn Observer>>,
    /// Reads the adapter's [record of decisions](roce_transport::trace), and keeps the latest of
    /// each queue pair. By default nobody does. A sink runs under the device's lock: it must
    /// neither wait nor use the device.
    pub trace: Trace,
    /// Explains failed calls, and failures of queue pairs, on stderr: the rule that was broken,
    /// what the peer said, what happened before, and what to look at; each cause once. By default
    /// nothing is explained, and nothing is recorded for it. A device that explains is slower: it
    /// records every packet.
    pub explain: Option<ExplainFormat>,
    /// Faults between adapter and link, in both directions. By default none. With faults, packets
    /// leave one by one.
    pub faults: FaultPlan,
    /// Seed of the faults' random numbers; the same seed gives the same faults to the same
    /// datagrams.
    pub fault_seed: u64,
    /// Late placement and reporting, for tests: a program that relies on more than the
    /// specification promises fails. Bytes that arrive are placed in any order, just before the
    /// completion or response that stands for them; completions and events wait. Off by default.
    /// `roce run --check=reorder,delay` says the same for programs of the C libraries.
    pub late: LateConfig,
    /// The P_Key table: the partitions that the adapter is a member of. By default full membership
    /// of the default partition, 0xFFFF.
    pub pkeys: PKeyTable,
    /// Sizes; the defaults are generous.
    pub limits: Limits,
    /// The adapter that the device shows itself as, with its limits in the place of `limits`. By
    /// default none.
    pub profile: Option<Profile>,
    /// Configuration of connection management: timeouts and number of retries.
    pub cm: CmConfig,
    /// Seed of all random numbers. By default 32 bytes from the operating system; a given seed
    /// makes every key and number predictable, which is for tests only.
    pub seed: Option<[u8; 32]>,
}

/// The most shards of a device: as many processes as have sockets of their own at an address.
pub(super) const MAX_SHARDS: usize = 16;

impl OpenOptions {
    /// Size in bytes that the system grants the receive buffer of a device that is opened now. If
    /// it is small and was not asked for, advice comes with it.
    ///
    /// # Errors
    /// When no socket can be made.
    pub fn granted_receive_buffer(&self) -> io::Result<(usize, Option<String>)> {
        let sockets = self.sockets();
        let granted = sockets.granted_receive_buffer()?;
        Ok((granted, sockets.advice(granted)))
    }

    /// Its seed, or one that nobody knows.
    pub(super) fn random_seed(&self) -> io::Result<[u8; 32]> {
        self.seed.map_or_else(random_seed, Ok)
    }

    /// How it treats others of this host, with this partition if it shares its addresses.
    pub(super) fn locality(&self, partition: u8) -> Locality {
        match self.progress {
            _ if self.receives_for_users => Locality::Network,
            Progress::Automatic if self.sockets_only && self.shard_count() > 1 => {
                Locality::SharedInProcess { partition }
            }
            _ if self.sockets_only => Locality::Network,
            // a program that does nothing for a while would keep others from what is theirs
            Progress::Manual => Locality::SharedMemory,
            Progress::Automatic => Locality::SharedAddress { partition },
        }
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.unwrap_or(1).max(1)
    }

    /// Those of its sockets.
    pub(super) fn sockets(&self) -> SocketOptions {
        SocketOptions {
            receive_buffer: self.receive_buffer,
            source_ports: self.source_ports,
            segments: self.segments,
            receives_for_users: self.receives_for_users,
        }
    }
}

/// A seed that nobody knows.
pub(super) fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(seed)
}
