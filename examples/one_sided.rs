//! One-sided operations with librdmacm's blocking helpers (`rdma_create_ep`, `rdma_post_write`, …).
//!
//! In two terminals:
//!
//! ```sh
//! cargo run --example one_sided             # the server
//! cargo run --example one_sided 127.0.0.1   # the client
//! ```
//!
//! The server reads and writes the client's memory, then reports.

use std::error::Error;

use roce::{
    Access, Data, RKey, Remote, SendFlags,
    cm::{AddrInfoHints, CmId, CmQpAttr, ConnParam, getaddrinfo},
};

const PORT: &str = "7472";
const LENGTH: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        None => serve(),
        Some(server) => call(&server),
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let everywhere = getaddrinfo(
        None,
        Some(PORT),
        &AddrInfoHints { passive: true, ..AddrInfoHints::default() },
    )?;
    let listener = CmId::create_ep(&everywhere[0], None, Some(&CmQpAttr::default()))?;
    listener.listen(1)?;
    for address in listener.listening_addrs() {
        println!("listening on {address}");
    }
    let id = listener.get_request()?;
    let inbox = id.reg_msgs(12)?;
    let memory = id.reg_msgs(LENGTH)?;
    id.post_recv(1, [inbox.sge_all()])?;
    id.accept(&ConnParam::default())?;
    id.get_recv_comp()?.result?;
    let told = inbox.to_vec(0..12)?;
    let remote = Remote {
        address: u64::from_be_bytes(told[..8].try_into()?),
        rkey: RKey(u32::from_be_bytes(told[8..].try_into()?)),
    };
    println!("the client's memory is at {:#x}, key {:#x}", remote.address, remote.rkey.0);

    id.post_read(2, memory.sge_all(), SendFlags::SIGNALED, remote)?;
    id.get_send_comp()?.result?;
    let found = memory.to_vec(0..LENGTH)?;
    println!("there stands {:?}", String::from_utf8_lossy(&found).trim_end_matches('\0'));
    let response: Vec<u8> = found.iter().map(u8::to_ascii_uppercase).collect();
    memory.write_at(0, &response)?;
    id.post_write(3, memory.sge_all(), SendFlags::SIGNALED, remote)?;
    id.get_send_comp()?.result?;
    id.post_send(4, Data::inline(b"done"), SendFlags::SIGNALED)?;
    id.get_send_comp()?.result?;
    id.disconnect()?;
    Ok(())
}

fn call(server: &str) -> Result<(), Box<dyn Error>> {
    let addresses = getaddrinfo(Some(server), Some(PORT), &AddrInfoHints::default())?;
    let id = CmId::create_ep(&addresses[0], None, Some(&CmQpAttr::default()))?;
    let memory = id
        .pd()?
        .allocate(LENGTH, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE)?;
    memory.write_at(0, b"whatever the client has to say")?;
    let inbox = id.reg_msgs(4)?;
    id.post_recv(1, [inbox.sge_all()])?;
    id.connect(&ConnParam::default())?;
    let Remote { address, rkey } = memory.remote(0);
    let told = [&address.to_be_bytes()[..], &rkey.0.to_be_bytes()].concat();
    id.post_send(2, Data::inline(&told), SendFlags::SIGNALED)?;
    id.get_send_comp()?.result?;
    // the server works on the memory until its report
    id.get_recv_comp()?.result?;
    let now = memory.to_vec(0..LENGTH)?;
    println!("there stands {:?} now", String::from_utf8_lossy(&now).trim_end_matches('\0'));
    id.disconnect()?;
    Ok(())
}
