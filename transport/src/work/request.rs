use bitflags::bitflags;
use smallvec::SmallVec;

use crate::{
    addr::{AddressVector, QKey},
    ids::{LKey, PdId, Qpn, RKey, SrqId},
    mem::{Access, WindowBind},
    wire::Immediate,
};

/// A piece of a region (`ibv_sge`), checked at execution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sge {
    /// Region key.
    pub lkey: LKey,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Scatter/gather list.
pub type SgeList = SmallVec<[Sge; 2]>;

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// First address.
    pub address: u64,
    /// The peer's key.
    pub rkey: RKey,
}

/// Destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdDestination {
    /// Address vector.
    pub av: AddressVector,
    /// Queue pair, or [`Qpn::MULTICAST`] for the group in `av`.
    pub qpn: Qpn,
    /// Queue key; the high bit selects the sender's.
    pub qkey: QKey,
    /// Protection domain required of the queue pair; `None` fits any.
    pub pd: Option<PdId>,
}

impl UdDestination {
    /// Without a protection domain.
    #[must_use]
    pub const fn new(av: AddressVector, qpn: Qpn, qkey: QKey) -> Self {
        Self { av, qpn, qkey, pd: None }
    }
}

/// Operation of a send request (`ibv_wr_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "an operation's comment describes its fields")]
pub enum SendOp {
    /// SEND (`IBV_WR_SEND`, `IBV_WR_SEND_WITH_IMM`).
    Send { immediate: Option<Immediate> },
    /// SEND on a UD queue pair to the receiver `to`.
    SendTo { to: UdDestination, immediate: Option<Immediate> },
    /// SEND that invalidates the peer's type 2 window (`IBV_WR_SEND_WITH_INV`).
    SendInvalidate { rkey: RKey },
    /// RDMA WRITE to `remote` (`IBV_WR_RDMA_WRITE`, `IBV_WR_RDMA_WRITE_WITH_IMM`). Immediate data
    /// completes a receive request.
    Write { remote: Remote, immediate: Option<Immediate> },
    /// RDMA READ from `remote` (`IBV_WR_RDMA_READ`).
    Read { remote: Remote },
    /// Compare and swap of an aligned word of 8 bytes (`IBV_WR_ATOMIC_CMP_AND_SWP`): expected and
    /// new value. The SGEs get the old word in host order.
    CompareSwap { remote: Remote, compare: u64, swap: u64 },
    /// Fetch and add on an aligned word of 8 bytes (`IBV_WR_ATOMIC_FETCH_AND_ADD`); the sum wraps.
    /// The SGEs get the old word in host order.
    FetchAdd { remote: Remote, add: u64 },
    /// Writes an aligned word of 8 bytes atomically (`IBV_WR_ATOMIC_WRITE`).
    AtomicWrite { remote: Remote },
    /// Waits until earlier writes to `length` bytes at `remote` are visible or persistent
    /// (`IBV_WR_FLUSH`). `whole`: to the whole region or window (`IBV_FLUSH_MR`); the address is
    /// unused.
    Flush { remote: Remote, length: u32, placement: Placement, whole: bool },
    /// Binds a memory window (`IBV_WR_BIND_MW`, `ibv_bind_mw`) locally, after earlier and before
    /// later requests.
    BindWindow(WindowBind),
    /// Invalidates this queue pair's type 2 window (`IBV_WR_LOCAL_INV`), ordered like a bind.
    LocalInvalidate { rkey: RKey },
}

impl SendOp {
    /// True if the response carries data.
    #[must_use]
    pub const fn awaits_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// True for operations that adapters without atomics refuse.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. } | Self::AtomicWrite { .. })
    }

    /// True for a READ-style response without data.
    #[must_use]
    pub const fn awaits_placement(&self) -> bool {
        matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }

    /// True if it counts as a READ or atomic.
    #[must_use]
    pub const fn takes_slot(&self) -> bool {
        self.awaits_data() || matches!(self, Self::AtomicWrite { .. })
    }

    /// True if executed locally.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow(_) | Self::LocalInvalidate { .. })
    }

    /// True without bytes.
    #[must_use]
    pub const fn is_bare(&self) -> bool {
        self.is_local() || matches!(self, Self::Flush { .. })
    }
}

bitflags! {
    /// Placement types of a FLUSH (`ibv_placement_type`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Placement: u8 {
        /// Visible to all readers.
        const GLOBAL = 1;
        /// Survives power loss.
        const PERSISTENT = 2;
    }
}

impl Placement {
    /// Required rights.
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
        /// Completes on success too.
        const SIGNALED = 1 << 1;
        /// Solicits the receiver's completion.
        const SOLICITED = 1 << 2;
    }
}

/// Bytes of a send request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Data {
    /// SGEs, read when packets are built (written by READs and atomics).
    Sges(SgeList),
    /// Copied at posting (`IBV_SEND_INLINE`); not for READs or atomics.
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

    /// Length, even beyond the limit.
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
    /// Identifier.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Payload or buffer.
    pub data: Data,
    /// Flags.
    pub flags: SendFlags,
    /// The peer's XRC SRQ (`wr.qp_type.xrc.remote_srqn`), from XRC initiators only.
    pub remote_srq: Option<SrqId>,
}

impl SendWr {
    /// Signaled SEND.
    #[must_use]
    pub fn send(wr_id: u64, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Send { immediate: None }, data.into())
    }

    /// Signaled UD SEND.
    #[must_use]
    pub fn send_to(wr_id: u64, to: UdDestination, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::SendTo { to, immediate: None }, data.into())
    }

    /// Signaled WRITE.
    #[must_use]
    pub fn write(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Write { remote, immediate: None }, data.into())
    }

    /// Signaled READ.
    #[must_use]
    pub fn read(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Read { remote }, data.into())
    }

    /// Signaled compare and swap.
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

    /// Signaled fetch and add.
    #[must_use]
    pub fn fetch_add(wr_id: u64, remote: Remote, add: u64, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::FetchAdd { remote, add }, data.into())
    }

    /// Signaled SEND with invalidation.
    #[must_use]
    pub fn send_invalidate(wr_id: u64, rkey: RKey, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::SendInvalidate { rkey }, data.into())
    }

    /// Signaled ATOMIC WRITE.
    #[must_use]
    pub fn atomic_write(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::AtomicWrite { remote }, data.into())
    }

    /// Signaled FLUSH of a range.
    #[must_use]
    pub fn flush(wr_id: u64, remote: Remote, length: u32, placement: Placement) -> Self {
        Self::bare(wr_id, SendOp::Flush { remote, length, placement, whole: false })
    }

    /// Signaled FLUSH of a region or window.
    #[must_use]
    pub fn flush_all(wr_id: u64, rkey: RKey, placement: Placement) -> Self {
        let remote = Remote { address: 0, rkey };
        Self::bare(wr_id, SendOp::Flush { remote, length: 0, placement, whole: true })
    }

    /// Signaled bind.
    #[must_use]
    pub fn bind_window(wr_id: u64, bind: WindowBind) -> Self {
        Self::bare(wr_id, SendOp::BindWindow(bind))
    }

    /// Signaled invalidation.
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

    /// Adds immediate data if possible.
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
    /// Identifier.
    pub wr_id: u64,
    /// Buffers.
    pub sges: SgeList,
}

impl RecvWr {
    /// Receive request.
    #[must_use]
    pub fn new(wr_id: u64, sges: impl IntoIterator<Item = Sge>) -> Self {
        Self { wr_id, sges: sges.into_iter().collect() }
    }
}
