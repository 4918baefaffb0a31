//! Work requests: plain values that say what to do with which bytes.

use bitflags::bitflags;
use smallvec::SmallVec;

use crate::{
    addr::{AddressVector, QKey},
    ids::{LKey, PdId, Qpn, RKey, SrqId},
    mem::{Access, WindowBind},
    wire::Immediate,
};

/// A piece of a local region (`ibv_sge`). Checked when the request is carried out, not when it is
/// posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sge {
    /// The region's key.
    pub lkey: LKey,
    /// First address, as the region counts.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// A scatter or gather list; up to two elements need no allocation.
pub type SgeList = SmallVec<[Sge; 2]>;

/// A place in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// First address, as the peer's region counts.
    pub address: u64,
    /// The peer's key.
    pub rkey: RKey,
}

/// Destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdDestination {
    /// The way to the peer.
    pub av: AddressVector,
    /// The peer's queue pair; [`Qpn::MULTICAST`] for everyone attached to the group that `av`
    /// names. One without the other is sent as it stands, and not received.
    pub qpn: Qpn,
    /// Its queue key; with the high bit set, the sender's own queue key is used instead.
    pub qkey: QKey,
    /// The protection domain of the address handle that the way comes from: only queue pairs of the
    /// same domain may use it. `None`: a plain way, for any.
    pub pd: Option<PdId>,
}

impl UdDestination {
    /// A queue pair, or with [`Qpn::MULTICAST`] a group, at the end of a plain way.
    #[must_use]
    pub const fn new(av: AddressVector, qpn: Qpn, qkey: QKey) -> Self {
        Self { av, qpn, qkey, pd: None }
    }
}

/// Operation of a send request (`ibv_wr_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendOp {
    /// A message to the peer's next receive request (`IBV_WR_SEND`, `IBV_WR_SEND_WITH_IMM`).
    Send {
        /// Immediate data for the receiver's completion.
        immediate: Option<Immediate>,
    },
    /// The same on a datagram queue pair.
    SendTo {
        /// The receiver.
        to: UdDestination,
        /// Immediate data for the receiver's completion.
        immediate: Option<Immediate>,
    },
    /// A message that also invalidates a key of the peer's, one of a memory window of type 2
    /// (`IBV_WR_SEND_WITH_INV`).
    SendInvalidate {
        /// The key.
        rkey: RKey,
    },
    /// Writes the bytes to the peer's memory (`IBV_WR_RDMA_WRITE`, `IBV_WR_RDMA_WRITE_WITH_IMM`).
    Write {
        /// Destination.
        remote: Remote,
        /// Immediate data; with it the write uses up a receive request of the peer and completes
        /// it.
        immediate: Option<Immediate>,
    },
    /// Reads the peer's memory into the list (`IBV_WR_RDMA_READ`).
    Read {
        /// Source.
        remote: Remote,
    },
    /// Replaces an 8-byte word of the peer's memory if it has a certain value
    /// (`IBV_WR_ATOMIC_CMP_AND_SWP`). The list, of eight bytes, gets the value found, in this
    /// host's byte order.
    CompareSwap {
        /// The word; its address is a multiple of eight.
        remote: Remote,
        /// The value it must have.
        compare: u64,
        /// The value it gets.
        swap: u64,
    },
    /// Adds to an 8-byte word of the peer's memory (`IBV_WR_ATOMIC_FETCH_AND_ADD`). The list, of
    /// eight bytes, gets the value found, in this host's byte order.
    FetchAdd {
        /// The word; its address is a multiple of eight.
        remote: Remote,
        /// The addend; the sum wraps.
        add: u64,
    },
    /// Writes eight bytes of the peer's memory at once (`IBV_WR_ATOMIC_WRITE`): a reader of the
    /// word sees all of them or none.
    AtomicWrite {
        /// The word; its address is a multiple of eight.
        remote: Remote,
    },
    /// Completes when what was written to the peer's memory before is visible there, or lasting
    /// (`IBV_WR_FLUSH`). Without bytes.
    Flush {
        /// First address. With `whole` only the key counts.
        remote: Remote,
        /// Bytes of the range.
        length: u32,
        /// Placement that is asked for.
        placement: Placement,
        /// The whole region or window instead of the range (`IBV_FLUSH_MR`).
        whole: bool,
    },
    /// Binds a memory window (`IBV_WR_BIND_MW`, `ibv_bind_mw`). Without bytes, and nothing goes to
    /// the peer. It starts when everything posted before is complete, and what is posted after it
    /// starts when the window is bound.
    BindWindow(WindowBind),
    /// Invalidates a memory window of type 2 that was bound with this queue pair
    /// (`IBV_WR_LOCAL_INV`). Without bytes; it starts as a bind does.
    LocalInvalidate {
        /// The window's key.
        rkey: RKey,
    },
}

impl SendOp {
    /// True if the responder answers it with data.
    #[must_use]
    pub const fn awaits_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// True if it changes the peer's memory in one step, which adapters without atomics do not.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. } | Self::AtomicWrite { .. })
    }

    /// True if the responder answers it as it does a READ, but without data.
    #[must_use]
    pub const fn awaits_placement(&self) -> bool {
        matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }

    /// True if it counts as one of the READs and atomics that may be outstanding.
    #[must_use]
    pub const fn takes_slot(&self) -> bool {
        self.awaits_data() || matches!(self, Self::AtomicWrite { .. })
    }

    /// True if it is carried out here, without a packet.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow(_) | Self::LocalInvalidate { .. })
    }

    /// True if it has no bytes of its own.
    #[must_use]
    pub const fn is_bare(&self) -> bool {
        self.is_local() || matches!(self, Self::Flush { .. })
    }
}

bitflags! {
    /// Placement types of a FLUSH (`ibv_placement_type`); at least one of them.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Placement: u8 {
        /// Everyone who reads the memory sees them.
        const GLOBAL = 1;
        /// They survive a loss of power.
        const PERSISTENT = 2;
    }
}

impl Placement {
    /// The rights that it needs of the region and of the responder's queue pair.
    #[must_use]
    pub fn needed(self) -> Access {
        let mut needed = Access::empty();
        needed.set(Access::FLUSH_GLOBAL, self.contains(Self::GLOBAL));
        needed.set(Access::FLUSH_PERSISTENT, self.contains(Self::PERSISTENT));
        needed
    }
}

bitflags! {
    /// Modifiers of a send request (`ibv_send_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Not before all READs and atomics posted earlier are complete.
        const FENCE = 1;
        /// Success gives a completion. Failure always does.
        const SIGNALED = 1 << 1;
        /// The receiver's completion counts as solicited.
        const SOLICITED = 1 << 2;
    }
}

/// The bytes of a send request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Data {
    /// Pieces of regions, read when packets are built (written, for a READ or an atomic).
    Sges(SgeList),
    /// Bytes copied when the request is posted (`IBV_SEND_INLINE`); not for a READ or an atomic.
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

    /// Bytes in all; more than 2^32 cannot be sent anyway.
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

/// A request for the send queue (`ibv_send_wr`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SendWr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// With which bytes.
    pub data: Data,
    /// Flags.
    pub flags: SendFlags,
    /// On an XRC initiator, the peer's XRC SRQ (`wr.qp_type.xrc.remote_srqn`): it receives the
    /// message, and its protection domain holds for READs, WRITEs and atomics. `None` on other
    /// queue pairs.
    pub remote_srq: Option<SrqId>,
}

impl SendWr {
    /// A signaled SEND.
    #[must_use]
    pub fn send(wr_id: u64, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Send { immediate: None }, data.into())
    }

    /// A signaled SEND on a datagram queue pair.
    #[must_use]
    pub fn send_to(wr_id: u64, to: UdDestination, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::SendTo { to, immediate: None }, data.into())
    }

    /// A signaled WRITE.
    #[must_use]
    pub fn write(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Write { remote, immediate: None }, data.into())
    }

    /// A signaled READ.
    #[must_use]
    pub fn read(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::Read { remote }, data.into())
    }

    /// A signaled compare and swap.
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

    /// A signaled fetch and add.
    #[must_use]
    pub fn fetch_add(wr_id: u64, remote: Remote, add: u64, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::FetchAdd { remote, add }, data.into())
    }

    /// A signaled SEND that invalidates a key of the peer's.
    #[must_use]
    pub fn send_invalidate(wr_id: u64, rkey: RKey, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::SendInvalidate { rkey }, data.into())
    }

    /// A signaled atomic WRITE of eight bytes.
    #[must_use]
    pub fn atomic_write(wr_id: u64, remote: Remote, data: impl Into<Data>) -> Self {
        Self::signaled(wr_id, SendOp::AtomicWrite { remote }, data.into())
    }

    /// A signaled FLUSH of `length` bytes.
    #[must_use]
    pub fn flush(wr_id: u64, remote: Remote, length: u32, placement: Placement) -> Self {
        Self::bare(wr_id, SendOp::Flush { remote, length, placement, whole: false })
    }

    /// A signaled FLUSH of the whole region or window that has this key.
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

    /// A signaled bind of a memory window.
    #[must_use]
    pub fn bind_window(wr_id: u64, bind: WindowBind) -> Self {
        Self::bare(wr_id, SendOp::BindWindow(bind))
    }

    /// A signaled invalidation of a memory window.
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

    /// The same request with immediate data, where its operation can carry some.
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

    /// The same request for this XRC SRQ of the peer.
    #[must_use]
    pub const fn to_srq(mut self, srq: SrqId) -> Self {
        self.remote_srq = Some(srq);
        self
    }

    /// The same request with exactly these flags.
    #[must_use]
    pub const fn with_flags(mut self, flags: SendFlags) -> Self {
        self.flags = flags;
        self
    }
}

/// A request for the receive queue (`ibv_recv_wr`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecvWr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Buffers of the message.
    pub sges: SgeList,
}

impl RecvWr {
    /// A request with these pieces of regions.
    #[must_use]
    pub fn new(wr_id: u64, sges: impl IntoIterator<Item = Sge>) -> Self {
        Self { wr_id, sges: sges.into_iter().collect() }
    }
}
