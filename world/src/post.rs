//! Requests of a player.

use roce_transport::{
    addr::AddressVector,
    ids::Qpn,
    qp::QpType,
    time::Instant,
    work::{RecvWr, Remote, SendWr, UdDestination},
};

use crate::{
    node::{Buffer, Node, QKEY},
    settings::{Post, PostKind},
};

/// Identifier of a player's first request; those that follow count on.
const FIRST_WR_ID: u64 = 1000;
/// Bytes in front of a datagram in a receive request's buffer.
const GRH: u32 = 40;

/// Posts a player's request. What is wrong with it stands in the adapter's record.
pub(crate) fn post(now: Instant, index: usize, post: &Post, own: &mut Node, peer: &mut Node) {
    let wr_id = FIRST_WR_ID + index as u64;
    let Some(&qpn) = own.queue_pairs().get(post.queue_pair) else { return };
    let service = own.adapter.query_qp(qpn).map(|info| info.qp_type);
    let near = own.first_buffer();
    let far = peer.first_buffer();
    let (bytes, word) = (near.sge(0, post.length), near.sge(0, 8));
    let wr = match post.kind {
        PostKind::Receive => {
            let header = if service == Some(QpType::Ud) { GRH } else { 0 };
            let wr = RecvWr::new(wr_id, [near.sge(0, post.length.saturating_add(header))]);
            let _ = own.adapter.post_recv(now, qpn, &wr);
            return;
        }
        PostKind::Send => match datagram_peer(service, peer) {
            Some(to) => SendWr::send_to(wr_id, to, bytes),
            None => SendWr::send(wr_id, bytes),
        },
        PostKind::Write => SendWr::write(wr_id, far.remote(0), bytes),
        PostKind::WriteWithKey(rkey) => {
            SendWr::write(wr_id, Remote { address: Buffer::ADDRESS, rkey }, bytes)
        }
        PostKind::Read => SendWr::read(wr_id, far.remote(0), bytes),
        PostKind::FetchAdd(add) => SendWr::fetch_add(wr_id, far.remote(0), add, word),
        PostKind::CompareSwap(compare, swap) => {
            SendWr::compare_swap(wr_id, far.remote(0), compare, swap, word)
        }
    };
    let _ = own.adapter.post_send(now, qpn, &wr);
}

/// The peer's first datagram queue pair, as a request of a datagram queue pair names it.
fn datagram_peer(service: Option<QpType>, peer: &Node) -> Option<UdDestination> {
    let is_datagram =
        |qpn: &&Qpn| peer.adapter.query_qp(**qpn).is_some_and(|info| info.qp_type == QpType::Ud);
    let qpn = *peer.queue_pairs().iter().find(is_datagram)?;
    let way = AddressVector::new(peer.ip.into(), 0);
    (service == Some(QpType::Ud)).then(|| UdDestination::new(way, qpn, QKEY))
}
