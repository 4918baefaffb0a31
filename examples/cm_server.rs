//! Server of the `roce::cm` pair, in the order of librdmacm's overview.
//!
//! In two terminals:
//!
//! ```sh
//! cargo run --example cm_server
//! cargo run --example cm_client
//! ```
//!
//! Serves one client on port 7471 of every address. `--udp`: datagrams. From another host, or
//! without 127.0.0.1:
//!
//! ```sh
//! cargo run --example cm_client ADDRESS
//! ```

use std::{error::Error, net::SocketAddr};

use roce::{
    SendFlags,
    cm::{CmEvent, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

const PORT: u16 = 7471;

fn main() -> Result<(), Box<dyn Error>> {
    let udp = std::env::args().any(|argument| argument == "--udp");

    // 1. rdma_create_event_channel
    let channel = EventChannel::new()?;
    // 2. rdma_create_id
    let listener = channel.create_id(if udp { PortSpace::Udp } else { PortSpace::Tcp });
    // 3. rdma_bind_addr: the port, on every address
    listener.bind_addr(SocketAddr::new([0, 0, 0, 0].into(), PORT))?;
    // 4. rdma_listen
    listener.listen(1)?;
    for address in listener.listening_addrs() {
        println!("listening on {address}");
    }
    // 5. rdma_get_cm_event: RDMA_CM_EVENT_CONNECT_REQUEST, with a new id
    let request = expect(&channel, EventKind::ConnectRequest)?;
    let id = request.id();
    println!("request from {}: {:?}", id.peer_addr().unwrap(), text(request.private_data()));
    // 6. ibv_alloc_pd: id.pd()
    // 7. ibv_create_comp_channel, ibv_create_cq: by create_qp
    // 8. rdma_create_qp
    id.create_qp(None, &CmQpAttr::default())?;
    // 9. ibv_reg_mr; 40 bytes for a datagram's network header
    let inbox = id.reg_msgs(40 + 64)?;
    let outbox = id.reg_msgs(64)?;
    let header = if udp { 40 } else { 0 };
    // 10. ibv_post_recv, before the client can send
    id.post_recv(1, [inbox.sge_all()])?;
    // 11. rdma_accept; for datagrams, only reports the queue pair
    id.accept(&ConnParam { private_data: b"come in".to_vec(), ..ConnParam::default() })?;
    // 12. rdma_get_cm_event: RDMA_CM_EVENT_ESTABLISHED
    if !udp {
        expect(&channel, EventKind::Established)?;
    }
    // 13. transfers and completions
    let completion = id.get_recv_comp()?;
    let received = completion.result?;
    println!("received {:?}", text(&inbox.to_vec(header..received.byte_len as usize)?));
    outbox.write_at(0, b"hello, client")?;
    if udp {
        // the sender's address precedes the datagram
        let area = inbox.to_vec(0..40)?;
        let back = id.pd()?.create_ah_from_wc(&completion, area[..].try_into()?)?;
        let to = back.to(received.src_qp.ok_or("no datagram")?, roce::cm::UDP_QKEY);
        id.post_ud_send(2, outbox.sge(0..13), SendFlags::SIGNALED, to)?;
    } else {
        id.post_send(2, outbox.sge(0..13), SendFlags::SIGNALED)?;
    }
    id.get_send_comp()?.result?;
    if !udp {
        // 14. rdma_get_cm_event: RDMA_CM_EVENT_DISCONNECTED
        expect(&channel, EventKind::Disconnected)?;
        // 15. rdma_disconnect: the response
        id.disconnect()?;
    }
    // 16. rdma_destroy_qp, ibv_destroy_cq, ibv_dereg_mr, ibv_dealloc_pd, rdma_destroy_id: by drop
    // 17. rdma_destroy_event_channel: by drop
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}
