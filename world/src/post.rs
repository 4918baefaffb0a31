use roce_transport::{
    addr::AddressVector,
    ids::Qpn,
    qp::QpType,
    time::Instant,
    work::{RecvWr, Remote, SendFlags, SendWr, UdDestination},
};

use crate::{
    node::{Buffer, EndQp, Node, QKEY},
    settings::{Post, PostKind},
};

/// `wr_id` of a player's first request.
const FIRST_WR_ID: u64 = 1000;
const GRH: u32 = 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    /// Index by creation.
    pub(crate) queue_pair: usize,
    pub(crate) kind: PostKind,
    pub(crate) length: u32,
    /// Offset in both ends' first memory regions.
    pub(crate) offset: u64,
    pub(crate) immediate: Option<u32>,
    pub(crate) flags: SendFlags,
}

impl Request {
    pub(crate) const fn of(post: &Post, index: usize) -> Self {
        Self {
            wr_id: FIRST_WR_ID + index as u64,
            queue_pair: post.queue_pair,
            kind: post.kind,
            length: post.length,
            offset: 0,
            immediate: None,
            flags: SendFlags::SIGNALED,
        }
    }

    /// Errors appear in the adapter's record.
    pub(crate) fn post(&self, now: Instant, own: &mut Node, qpn: Qpn, peer: &mut Node) {
        let service = own.adapter.query_qp(qpn).map(|info| info.qp_type);
        let near = own.first_buffer();
        let far = peer.first_buffer();
        let (wr_id, remote) = (self.wr_id, far.remote(self.offset));
        let (bytes, word) = (near.sge(self.offset, self.length), near.sge(self.offset, 8));
        let wr = match self.kind {
            PostKind::Receive => {
                let header = if service == Some(QpType::Ud) { GRH } else { 0 };
                let room = near.sge(self.offset, self.length.saturating_add(header));
                let _ = own.adapter.post_recv(now, qpn, &RecvWr::new(wr_id, [room]));
                return;
            }
            PostKind::Send => match datagram_peer(service, own.peer(qpn), peer) {
                Some(to) => SendWr::send_to(wr_id, to, bytes),
                None => SendWr::send(wr_id, bytes),
            },
            PostKind::Write => SendWr::write(wr_id, remote, bytes),
            PostKind::WriteWithKey(rkey) => {
                let address = Buffer::ADDRESS + self.offset;
                SendWr::write(wr_id, Remote { address, rkey }, bytes)
            }
            PostKind::Read => SendWr::read(wr_id, remote, bytes),
            PostKind::FetchAdd(add) => SendWr::fetch_add(wr_id, remote, add, word),
            PostKind::CompareSwap(compare, swap) => {
                SendWr::compare_swap(wr_id, remote, compare, swap, word)
            }
        };
        let wr = wr.with_flags(self.flags);
        let wr = match self.immediate {
            Some(value) => wr.with_immediate(value.to_be_bytes()),
            None => wr,
        };
        let _ = own.adapter.post_send(now, qpn, &wr);
    }
}

/// The peer's datagram queue pair made with this queue pair, or its first.
fn datagram_peer(
    service: Option<QpType>,
    made: Option<EndQp>,
    peer: &Node,
) -> Option<UdDestination> {
    let is_datagram =
        |qpn: &&Qpn| peer.adapter.query_qp(**qpn).is_some_and(|info| info.qp_type == QpType::Ud);
    let made = made.map(|place| place.qpn);
    let qpn = *made.iter().chain(&peer.queue_pairs).find(is_datagram)?;
    let way = AddressVector::new(peer.ip.into(), 0);
    (service == Some(QpType::Ud)).then(|| UdDestination::new(way, qpn, QKEY))
}
