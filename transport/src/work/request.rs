//! Work requests as plain values.

use bitflags::bitflags;
use smallvec::SmallVec;

use crate::{
    addr::{AddressVector, QKey},
    ids::{LKey, PdId, Qpn, RKey, SrqId},
    mem::{Access, WindowBind},
    wire::Immediate,
};

/// A piece of a local region (`ibv_sge`), checked at execution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sge {
    /// Region key.
    pub lkey: LKey,
    /// First address in the region.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
}

/// A scatter/gather list; up to two SGEs need no allocation.
pub type SgeList = SmallVec<[Sge; 2]>;

/// An address in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// First address in the peer's region.
    pub address: u64,
    /// The peer's key.
    pub rkey: RKey,
}

/// Destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdDestination {
    /// Address vector.
    pub av: AddressVector,
    /// The peer's queue pair, or [`Qpn::MULTICAST`] for the group in `av`. A mismatch is sent but
    /// not received.
    pub qpn: Qpn,
    /// Queue key; with the high bit set, the sender's own is used.
    pub qkey: QKey,
    /// Protection domain of the address handle; a queue pair of another domain cannot use it.
    /// `None` fits any.
    pub pd: Option<PdId>,
}

impl UdDestination {
    /// Returns a destination without a protection domain.
    #[must_use]
    pub const fn new(av: AddressVector, qpn: Qpn, qkey: QKey) -> Self {
        Self { av, qpn, qkey, pd: None }
    }
}

/// Operation of a send request (`ibv_wr_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendOp {
    /// Sends a message to the peer's next receive request (`IBV_WR_SEND`, `IBV_WR_SEND_WITH_IMM`).
    Send {
        /// Immediate data for the receiver.
        immediate: Option<Immediate>,
    },
    /// Sends on a UD queue pair.
    SendTo {
        /// The receiver.
        to: UdDestination,
        /// Immediate data for the receiver.
        immediate: Option<Immediate>,
    },
    /// Sends, and invalidates a type 2 window of the peer (`IBV_WR_SEND_WITH_INV`).
    SendInvalidate {
        /// The key.
        rkey: RKey,
    },
    /// Writes to the peer's memory (`IBV_WR_RDMA_WRITE`, `IBV_WR_RDMA_WRITE_WITH_IMM`).
    Write {
        /// Destination.
        remote: Remote,
        /// Immediate data; consumes and completes the peer's receive request.
        immediate: Option<Immediate>,
    },
    /// Reads the peer's memory (`IBV_WR_RDMA_READ`).
    Read {
        /// Source.
        remote: Remote,
    },
    /// Replaces the peer's 8-byte word if it equals `compare` (`IBV_WR_ATOMIC_CMP_AND_SWP`). The
    /// SGEs, 8 bytes, get the old value in host byte order.
    CompareSwap {
        /// The word, 8-byte aligned.
        remote: Remote,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Adds to the peer's 8-byte word (`IBV_WR_ATOMIC_FETCH_AND_ADD`). The SGEs, 8 bytes, get the
    /// old value in host byte order.
    FetchAdd {
        /// The word, 8-byte aligned.
        remote: Remote,
        /// The addend; the sum wraps.
        add: u64,
    },
    /// Writes eight bytes atomically (`IBV_WR_ATOMIC_WRITE`): readers see all or none.
    AtomicWrite {
        /// The word, 8-byte aligned.
        remote: Remote,
    },
    /// Completes when earlier writes are visible or persistent at the peer (`IBV_WR_FLUSH`).
    /// Carries no bytes.
    Flush {
        /// First address; only the key matters with `whole`.
        remote: Remote,
        /// Bytes of the range.
        length: u32,
        /// Required placement.
        placement: Placement,
        /// Flushes the whole region or window (`IBV_FLUSH_MR`).
        whole: bool,
    },
    /// Binds a memory window locally (`IBV_WR_BIND_MW`, `ibv_bind_mw`), without bytes. It starts
    /// after everything posted earlier completes; later requests start once the window is bound.
    BindWindow(WindowBind),
    /// Invalidates a type 2 window bound by this queue pair (`IBV_WR_LOCAL_INV`), without bytes,
    /// ordered like a bind.
    LocalInvalidate {
        /// The window's key.
        rkey: RKey,
    },
}

impl SendOp {
    /// True if the response carries data.
    #[must_use]
    pub const fn awaits_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// True if it changes the peer's memory atomically; adapters without atomics refuse it.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. } | Self::AtomicWrite { .. })
    }

    /// True for a READ-style response without data.
    #[must_use]
    pub const fn awaits_placement(&self) -> bool {
        matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }

    /// True if it counts as an outstanding READ or atomic.
    #[must_use]
    pub const fn takes_slot(&self) -> bool {
        self.awaits_data() || matches!(self, Self::AtomicWrite { .. })
    }

    /// True if it executes locally, without a packet.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow(_) | Self::LocalInvalidate { .. })
    }

    /// True if it carries no bytes.
    #[must_use]
    pub const fn is_bare(&self) -> bool {
        self.is_local() || matches!(self, Self::Flush { .. })
    }
}

bitflags! {
    /// Placement types of a FLUSH (`ibv_placement_type`), at least one.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Placement: u8 {
        /// Visible to all readers.
        const GLOBAL = 1;
        /// Survives power loss.
        const PERSISTENT = 2;
    }
}

impl Placement {
    /// Returns the rights required of region and responder.
    #[must_use]
    pub fn needed(self) -> Access {
        let mut needed = Access::empty();
        needed.set(Access::FLUSH_GLOBAL, self.contains(Self::GLOBAL));
        needed.set(Access::FLUSH_PERSISTENT, self.contains(Self::PERSISTENT));
        needed
    }
}

bitflags! {
    /// Send request flags (`ibv_send_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Waits for earlier READs and atomics.
        const FENCE = 1;
        /// Success completes too; failure always does.
        const SIGNALED = 1 << 1;
        /// Marks the receiver's completion as solicited.
        const SOLICITED = 1 << 2;
    }
}

/// Bytes of a send request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Data {
    /// SGEs, read when packets are built (written by a READ or atomic).
    Sges(SgeList),
    /// Bytes copied at posting (`IBV_SEND_INLINE`); not for READs or atomics.
    Inline(SmallVec<[u8; 64]>),
}

impl Data {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::Sges(SgeList::new())
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn inline(bytes: &[u8]) -> Self {
        Self::Inline(SmallVec::from_slice(bytes))
    }

    /// Returns the total, even if too long to send.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

impl<const N: usize> From<[Sge; N]> for Data {
    fn from(sges: [Sge; N]) -> Self {
        Self::Sges(sges.into_iter().collect())
    }
}

impl From<Sge> for Data {
    fn from(sge: Sge) -> Self {
        [sge].into()
    }
}

/// A send request (`ibv_send_wr`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SendWr {
    /// Identifier for the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Payload, or buffer for a READ or atomic.
    pub data: Data,
    /// Flags.
    pub flags: SendFlags,
    /// The peer's XRC SRQ (`wr.qp_type.xrc.remote_srqn`), for XRC initiators only. It receives
    /// messages; its protection domain applies to READs, WRITEs and atomics.
    pub remote_srq: Option<SrqId>,
}

impl SendWr {
    /// Returns a signaled SEND.
    #[must_use]
    pub fn send(wr_id: u64, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Send { immediate: None }, data.into())
    }

    /// Returns a signaled SEND for UD.
    #[must_use]
    pub fn send_to(wr_id: u64, to: UdDestination, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::SendTo { to, immediate: None }, data.into())
    }

    /// Returns a signaled WRITE.
    #[must_use]
    pub fn write(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Write { remote, immediate: None }, data.into())
    }

    /// Returns a signaled READ.
    #[must_use]
    pub fn read(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Read { remote }, data.into())
    }

    /// Returns a signaled compare and swap.
    #[must_use]
    pub fn compare_swap(
        wr_id: u64,
        remote: Remote,
        compare: u64,
        swap: u64,
        data: impl Into<Data>,
    ) -> Self {
        Self::signaled(wr_id, SendOp::CompareSwap { remote, compare, swap }, data.into())
    }

    /// Returns a signaled fetch and add.
    #[must_use]
    pub fn fetch_add(wr_id: u64, remote: Remote, add: u64, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::FetchAdd { remote, add }, data.into())
    }

    /// Returns a signaled SEND with invalidation.
    #[must_use]
    pub fn send_invalidate(wr_id: u64, rkey: RKey, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::SendInvalidate { rkey }, data.into())
    }

    /// Returns a signaled ATOMIC WRITE.
    #[must_use]
    pub fn atomic_write(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::AtomicWrite { remote }, data.into())
    }

    /// Returns a signaled FLUSH of a range.
    #[must_use]
    pub fn flush(wr_id: u64, remote: Remote, length: u32, placement: Placement) -> Self {
        Self::bare(wr_id, SendOp::Flush { remote, length, placement, whole: false })
    }

    /// Returns a signaled FLUSH of a whole region or window.
    #[must_use]
    pub fn flush_all(wr_id: u64, rkey: RKey, placement: Placement) -> Self {
        Self::bare(
            wr_id,
            SendOp::Flush {
                remote: Remote { address: 0, rkey },
                length: 0,
                placement,
                whole: true,
            },
        )
    }

    /// Returns a signaled bind.
    #[must_use]
    pub fn bind_window(wr_id: u64, bind: WindowBind) -> Self {
        Self::bare(wr_id, SendOp::BindWindow(bind))
    }

    /// Returns a signaled invalidation.
    #[must_use]
    pub fn local_invalidate(wr_id: u64, rkey: RKey) -> Self {
        Self::bare(wr_id, SendOp::LocalInvalidate { rkey })
    }

    fn signaled(wr_id: u64, op: SendOp, data: Data) -> Self {
        Self { wr_id, op, data, flags: SendFlags::SIGNALED, remote_srq: None }
    }

    fn bare(wr_id: u64, op: SendOp) -> Self {
        Self::signaled(wr_id, op, Data::empty())
    }

    /// Adds immediate data if the operation can carry it.
    #[must_use]
    pub fn with_immediate(mut self, bytes: [u8; 4]) -> Self {
        match &mut self.op {
            SendOp::Send { immediate }
            | SendOp::SendTo { immediate, .. }
            | SendOp::Write { immediate, .. } => {
                *immediate = Some(Immediate(bytes));
            }
            _ => {}
        }
        self
    }

    /// Sets the peer's XRC SRQ.
    #[must_use]
    pub const fn to_srq(mut self, srq: SrqId) -> Self {
        self.remote_srq = Some(srq);
        self
    }

    /// Replaces the flags.
    #[must_use]
    pub const fn with_flags(mut self, flags: SendFlags) -> Self {
        self.flags = flags;
        self
    }
}

/// A receive request (`ibv_recv_wr`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecvWr {
    /// Identifier for the completion.
    pub wr_id: u64,
    /// Buffers.
    pub sges: SgeList,
}

impl RecvWr {
    /// Returns a request with these SGEs.
    #[must_use]
    pub fn new(wr_id: u64, sges: impl IntoIterator<Item = Sge>) -> Self {
        Self { wr_id, sges: sges.into_iter().collect() }
    }
}
