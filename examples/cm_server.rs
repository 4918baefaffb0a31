//! The server of a client and a server that connect with `roce::cm`, as the overview of librdmacm
//! has them.
//!
//! In two terminals, on one host, without privilege:
//!
//! ```sh
//! cargo run --example cm_server
//! cargo run --example cm_client
//! ```
//!
//! The server listens on port 7471 of every address that the host has, prints which, answers one
//! client, and ends. If the client is on another host, or the server does not have 127.0.0.1:
//! `cargo run --example cm_client ADDRESS`. With `--udp` both talk in datagrams.

use std::{error::Error, net::SocketAddr};

use roce::{
    SendFlags,
    cm::{CmEvent, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

const PORT: u16 = 7471;

fn main() -> Result<(), Box<dyn Error>> {
    let udp = std::env::args().any(|argument| argument == "--udp");

    // 1. rdma_create_event_channel: where events come
    let channel = EventChannel::new()?;
    // 2. rdma_create_id: like a socket
    let listener = channel.create_id(if udp { PortSpace::Udp } else { PortSpace::Tcp });
    // 3. rdma_bind_addr: the port to listen on, on every address
    listener.bind_addr(SocketAddr::new([0, 0, 0, 0].into(), PORT))?;
    // 4. rdma_listen
    listener.listen(1)?;
    for address in listener.listening_addrs() {
        println!("listening on {address}");
    }
    // 5. rdma_get_cm_event: wait for RDMA_CM_EVENT_CONNECT_REQUEST; the event has a new id
    let request = expect(&channel, EventKind::ConnectRequest)?;
    let id = request.id();
    println!("request from {}: {:?}", id.peer_addr().unwrap(), text(request.private_data()));
    // 6. ibv_alloc_pd: an id brings a protection domain of its own (id.pd())
    // 7. ibv_create_comp_channel, ibv_create_cq: create_qp makes both, for either direction
    // 8. rdma_create_qp
    id.create_qp(None, &CmQpAttr::default())?;
    // 9. ibv_reg_mr; a datagram has 40 bytes for a network header in front
    let inbox = id.reg_msgs(40 + 64)?;
    let outbox = id.reg_msgs(64)?;
    let header = if udp { 40 } else { 0 };
    // 10. ibv_post_recv, before the client can send
    id.post_recv(1, [inbox.sge_all()])?;
    // 11. rdma_accept; datagrams: tells the client the queue pair, and that was all
    id.accept(&ConnParam { private_data: b"come in".to_vec(), ..ConnParam::default() })?;
    // 12. rdma_get_cm_event: wait for RDMA_CM_EVENT_ESTABLISHED
    if !udp {
        expect(&channel, EventKind::Established)?;
    }
    // 13. transfers, and their completions
    let completion = id.get_recv_comp()?;
    let received = completion.result?;
    println!("received {:?}", text(&inbox.to_vec(header..received.byte_len as usize)?));
    outbox.write_at(0, b"hello, client")?;
    if udp {
        // the sender's address stands in front of the datagram
        let area = inbox.to_vec(0..40)?;
        let back = id.pd()?.create_ah_from_wc(&completion, area[..].try_into()?)?;
        let to = back.to(received.src_qp.ok_or("no datagram")?, roce::cm::UDP_QKEY);
        id.post_ud_send(2, outbox.sge(0..13), SendFlags::SIGNALED, to)?;
    } else {
        id.post_send(2, outbox.sge(0..13), SendFlags::SIGNALED)?;
    }
    id.get_send_comp()?.result?;
    if !udp {
        // 14. rdma_get_cm_event: wait for RDMA_CM_EVENT_DISCONNECTED
        expect(&channel, EventKind::Disconnected)?;
        // 15. rdma_disconnect: the answer to it
        id.disconnect()?;
    }
    // 16. rdma_destroy_qp, ibv_destroy_cq, ibv_dereg_mr, ibv_dealloc_pd, rdma_destroy_id: what is
    //     dropped is destroyed
    // 17. rdma_destroy_event_channel: likewise
    println!("done");
    Ok(())
}

fn expect(channel: &EventChannel, kind: EventKind) -> Result<CmEvent, Box<dyn Error>> {
    let event = channel.wait(None)?;
    if event.kind() == kind {
        Ok(event)
    } else {
        Err(format!("{}: {}", event.kind(), event.status()).into())
    }
}

/// Text in front of the zeros.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}
