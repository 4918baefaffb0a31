//! Client of `cm_server`.
//!
//! ```sh
//! cargo run --example cm_client [ADDRESS] [--udp]
//! ```

use std::{error::Error, net::SocketAddr, time::Duration};

use roce::{
    SendFlags,
    cm::{CmEvent, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

const PORT: u16 = 7471;
const TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mut address = "127.0.0.1".to_owned();
    let mut udp = false;
    for argument in std::env::args().skip(1) {
        if argument == "--udp" { udp = true } else { address = argument }
    }
    let server = SocketAddr::new(address.parse()?, PORT);

    // 1. rdma_create_event_channel
    let channel = EventChannel::new()?;
    // 2. rdma_create_id
    let id = channel.create_id(if udp { PortSpace::Udp } else { PortSpace::Tcp });
    // 3. rdma_resolve_addr: finds the device
    id.resolve_addr(None, server, TIMEOUT)?;
    // 4. rdma_get_cm_event: RDMA_CM_EVENT_ADDR_RESOLVED
    expect(&channel, EventKind::AddrResolved)?;
    println!("from {} to {server}", id.local_addr().unwrap());
    // 5. ibv_alloc_pd: id.pd()
    // 6. ibv_create_comp_channel, 7. ibv_create_cq: by create_qp
    // 8. rdma_create_qp
    id.create_qp(None, &CmQpAttr::default())?;
    // 9. ibv_reg_mr; 40 bytes for a datagram's network header
    let inbox = id.reg_msgs(40 + 64)?;
    let outbox = id.reg_msgs(64)?;
    let header = if udp { 40 } else { 0 };
    // 10. ibv_post_recv, before the server can send
    id.post_recv(1, [inbox.sge_all()])?;
    // 11. rdma_resolve_route: finds the path MTU
    id.resolve_route(TIMEOUT)?;
    // 12. rdma_get_cm_event: RDMA_CM_EVENT_ROUTE_RESOLVED
    expect(&channel, EventKind::RouteResolved)?;
    // 13. rdma_connect
    id.connect(&ConnParam { private_data: b"may I?".to_vec(), ..ConnParam::default() })?;
    // 14. rdma_get_cm_event: RDMA_CM_EVENT_ESTABLISHED
    let established = expect(&channel, EventKind::Established)?;
    println!("the server says {:?}", text(established.private_data()));
    // 15. transfers and completions
    outbox.write_at(0, b"hello, server")?;
    match established.ud() {
        Some(ud) => id.post_ud_send(2, outbox.sge(0..13), SendFlags::SIGNALED, ud.destination())?,
        None => id.post_send(2, outbox.sge(0..13), SendFlags::SIGNALED)?,
    }
    id.get_send_comp()?.result?;
    let received = id.get_recv_comp()?.result?;
    println!("received {:?}", text(&inbox.to_vec(header..received.byte_len as usize)?));
    if !udp {
        // 16. rdma_disconnect
        id.disconnect()?;
        // 17. rdma_get_cm_event: RDMA_CM_EVENT_DISCONNECTED
        expect(&channel, EventKind::Disconnected)?;
    }
    // 18. rdma_destroy_qp, ibv_destroy_cq, ibv_dereg_mr, ibv_dealloc_pd, rdma_destroy_id: by drop
    // 19. rdma_destroy_event_channel: by drop
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
