//! Echo server and client as tokio tasks on one thread.
//!
//! ```sh
//! cargo run --example async_echo --features tokio
//! ```

use std::{error::Error, net::SocketAddr, time::Duration};

use roce::{
    CompletionQueue, Device, NotifyKind, OpenOptions, SendFlags, Wc,
    cm::{CmEvent, CmId, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
    tokio::{AsyncCompletionChannel, AsyncEventChannel},
};

type Failure = Box<dyn Error>;

const MESSAGES: u64 = 5;
const TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let events = AsyncEventChannel::new(EventChannel::new()?)?;
        let listener = events.channel().create_id(PortSpace::Tcp);
        listener.set_context(&Device::named("roce_lo")?.open(OpenOptions::default())?)?;
        listener.listen(1)?;
        let local = tokio::task::LocalSet::new();
        let address = listener.listening_addrs()[0];
        let server = local
            .spawn_local(async move { echo(&events).await.map_err(|error| error.to_string()) });
        let client = local
            .spawn_local(async move { call(address).await.map_err(|error| error.to_string()) });
        local.await;
        client.await??;
        server.await??;
        Ok(())
    })
}

async fn echo(events: &AsyncEventChannel) -> Result<(), Failure> {
    let request = expect(events, EventKind::ConnectRequest).await?;
    let id = request.id();
    id.create_qp(None, &CmQpAttr::default())?;
    let (inbox, mut queues) = (id.reg_msgs(64)?, Queues::of(id)?);
    id.post_recv(0, [inbox.sge_all()])?;
    id.accept(&ConnParam::default())?;
    expect(events, EventKind::Established).await?;
    for _ in 0..MESSAGES {
        let length = queues.received().await?.result?.byte_len as usize;
        id.post_send(1, inbox.sge(0..length), SendFlags::SIGNALED)?;
        queues.sent().await?.result?;
        // posted before the client's next message, or the peer waits
        id.post_recv(0, [inbox.sge_all()])?;
    }
    expect(events, EventKind::Disconnected).await?;
    id.disconnect()?;
    Ok(())
}

async fn call(server: SocketAddr) -> Result<(), Failure> {
    let events = AsyncEventChannel::new(EventChannel::new()?)?;
    let id = events.channel().create_id(PortSpace::Tcp);
    id.resolve_addr(None, server, TIMEOUT)?;
    expect(&events, EventKind::AddrResolved).await?;
    id.resolve_route(TIMEOUT)?;
    expect(&events, EventKind::RouteResolved).await?;
    id.create_qp(None, &CmQpAttr::default())?;
    let (inbox, outbox, mut queues) = (id.reg_msgs(64)?, id.reg_msgs(64)?, Queues::of(&id)?);
    id.connect(&ConnParam::default())?;
    expect(&events, EventKind::Established).await?;
    for number in 1..=MESSAGES {
        let text = format!("message {number}");
        outbox.write_at(0, text.as_bytes())?;
        id.post_recv(0, [inbox.sge_all()])?;
        id.post_send(1, outbox.sge(0..text.len()), SendFlags::SIGNALED)?;
        queues.sent().await?.result?;
        let length = queues.received().await?.result?.byte_len as usize;
        println!("echo of {text:?}: {:?}", String::from_utf8_lossy(&inbox.to_vec(0..length)?));
    }
    id.disconnect()?;
    expect(&events, EventKind::Disconnected).await?;
    Ok(())
}

async fn expect(events: &AsyncEventChannel, kind: EventKind) -> Result<CmEvent, Failure> {
    let event = events.next().await?;
    if event.kind() == kind {
        Ok(event)
    } else {
        Err(format!("{}: {}", event.kind(), event.status()).into())
    }
}

struct Queues {
    send: (CompletionQueue, AsyncCompletionChannel),
    recv: (CompletionQueue, AsyncCompletionChannel),
}

impl Queues {
    fn of(id: &CmId) -> Result<Self, Failure> {
        let (Some(send), Some(send_channel)) = (id.send_cq(), id.send_cq_channel()) else {
            return Err("no queue".into());
        };
        let (Some(recv), Some(recv_channel)) = (id.recv_cq(), id.recv_cq_channel()) else {
            return Err("no queue".into());
        };
        let (send_channel, recv_channel) = (
            AsyncCompletionChannel::new(send_channel)?,
            AsyncCompletionChannel::new(recv_channel)?,
        );
        Ok(Self { send: (send, send_channel), recv: (recv, recv_channel) })
    }

    async fn sent(&mut self) -> Result<Wc, Failure> {
        next(&self.send).await
    }

    async fn received(&mut self) -> Result<Wc, Failure> {
        next(&self.recv).await
    }
}

/// Polls, arms, polls, then waits.
async fn next((cq, channel): &(CompletionQueue, AsyncCompletionChannel)) -> Result<Wc, Failure> {
    loop {
        if let Some(wc) = cq.poll_one() {
            return Ok(wc);
        }
        cq.req_notify(NotifyKind::Next);
        if let Some(wc) = cq.poll_one() {
            return Ok(wc);
        }
        channel.next().await?;
    }
}
