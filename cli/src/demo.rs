//! `roce demo`: two adapters in one process, over real UDP sockets, with every packet explained.

mod ladder;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use roce::{
    Access, CompletionQueue, Context, Device, MemoryRegion, OpenOptions, ProtectionDomain,
    QpInitAttr, QpType, QueuePair, RecvWr, SendWr, Wc,
    cm::{CmEvent, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
    fabric::FaultPlan,
};

use crate::{failure::Failure, output::outln};
use ladder::{Ladder, Watcher};

/// Watch two adapters talk to each other.
///
/// Opens two devices on loopback addresses of this host, connects a queue pair on each (reliable
/// connection, path MTU 1024) and does a SEND, an RDMA WRITE and an RDMA READ; then a WRITE of
/// which one packet is lost on the way; then connects two more by messages, as rdma_cm does. Prints
/// each packet as it crosses the wire, with its opcode, destination queue pair number and PSN, and
/// what the receiving adapter made of it. At the end, some figures. Needs no privilege and no
/// set-up.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Capture the first adapter's packets into this pcapng file, for Wireshark
    #[arg(long, value_name = "FILE")]
    pcap: Option<std::path::PathBuf>,
}

/// Path MTU of the connection.
const MTU: roce::Mtu = roce::Mtu::B1024;
/// Size and number of the WRITEs that the figures are measured with.
const BULK: usize = 1 << 20;
const BULK_TIMES: usize = 256;

/// One adapter with what a program makes on it.
struct Side {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

impl Side {
    fn open(options: OpenOptions) -> Result<Self, Failure> {
        let context = Device::named("roce_lo")?.open(options)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64, None)?;
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.allocate(8192, access)?;
        Ok(Self { context, pd, cq, qp, memory })
    }

    /// Waits for the next completion.
    fn complete(&self) -> Result<Wc, Failure> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if let Some(wc) = self.cq.poll_one() {
                wc.result?;
                return Ok(wc);
            }
        }
        Err("no completion in ten seconds; is UDP between loopback addresses blocked on this host?"
            .into())
    }
}

fn connect(a: &Side, b: &Side) -> Result<(), Failure> {
    let ends = [&a.qp, &b.qp].map(|qp| qp.endpoint(0));
    let [Some(end_a), Some(end_b)] = ends else {
        return Err("the loopback device has no address".into());
    };
    a.qp.connect_with_mtu(end_b, MTU)?;
    b.qp.connect_with_mtu(end_a, MTU)?;
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let ladder = Arc::new(Mutex::new(Ladder::default()));
    let watched = |name, faults: FaultPlan| OpenOptions {
        observer: Some(Box::new(Watcher::new(name, ladder.clone(), &faults))),
        faults,
        ..OpenOptions::default()
    };
    // lost on its way from A: the third middle packet of a WRITE, which is the second of the last
    // step
    let lose_one: FaultPlan = "drop write middle nth 3 tx".parse()?;
    let a = Side::open(OpenOptions { pcap: args.pcap.clone(), ..watched('A', lose_one) })?;
    let b = Side::open(watched('B', FaultPlan::default()))?;
    let show = |title: &str| ladder::print(&ladder, title);

    for (name, side) in [("A", &a), ("B", &b)] {
        let end = side.qp.endpoint(0).map(|end| (end.gid.to_ip(), end.qpn, end.psn));
        if let Some((address, qpn, psn)) = end {
            outln!("adapter {name}  {address} UDP port 4791  queue pair {qpn}  first PSN {psn}");
        }
    }
    connect(&a, &b)?;
    outln!("connected: RESET → INIT → RTR → RTS on both sides; nothing crosses the wire for that");

    b.qp.post_recv(&[RecvWr::new(1, [b.memory.sge_all()])])?;
    a.memory.write_at(0, b"hello over RDMA")?;
    a.qp.post_send(&[SendWr::send(2, a.memory.sge(0..15))])?;
    let received = b.complete()?;
    a.complete()?;
    show("SEND of 15 bytes: it goes into B's receive request, and both sides get a completion");
    let length = received.result?.byte_len as usize;
    outln!("  B received {:?}", String::from_utf8_lossy(&b.memory.to_vec(0..length)?));

    a.memory.fill(0xA5)?;
    a.qp.post_send(&[SendWr::write(3, b.memory.remote(0), a.memory.sge(0..2500))])?;
    a.complete()?;
    show("RDMA WRITE of 2,500 bytes: straight into B's memory; B's program does nothing");

    a.qp.post_send(&[SendWr::read(4, b.memory.remote(100), a.memory.sge(0..2048))])?;
    a.complete()?;
    show("RDMA READ of 2,048 bytes: one request, answered out of B's memory");

    let before = a.context.counters();
    a.memory.fill(0x5A)?;
    a.qp.post_send(&[SendWr::write(5, b.memory.remote(0), a.memory.sge(0..5000))])?;
    a.complete()?;
    show(
        "RDMA WRITE of 5,000 bytes, one packet lost: B sees the gap and says so, A goes back and \
         sends again",
    );
    if b.memory.to_vec(0..5000)? != [0x5A; 5000] {
        return Err("B's memory is not what A wrote; this is a bug in roce".into());
    }
    let after = a.context.counters();
    outln!(
        "  all 5,000 bytes arrived; A received {} NAK and sent {} packets again",
        after.sequence_naks_received - before.sequence_naks_received,
        after.retransmitted_packets - before.retransmitted_packets
    );
    connecting(&a.context, &b.context, &show)?;
    drop((a, b));
    figures()
}

/// The same two adapters connect a pair of queue pairs with each other by messages, as programs do
/// with `rdma_cm`.
fn connecting(a: &Context, b: &Context, show: &dyn Fn(&str)) -> Result<(), Failure> {
    let wait = |channel: &EventChannel, kind: EventKind| -> Result<CmEvent, Failure> {
        let event = channel.wait(Some(Duration::from_secs(10)))?;
        if event.kind() == kind {
            Ok(event)
        } else {
            Err(format!("{}: {}", event.kind(), event.status()).into())
        }
    };
    let (a_channel, b_channel) = (EventChannel::new()?, EventChannel::new()?);
    let listener = b_channel.create_id(PortSpace::Tcp);
    listener.set_context(b)?;
    listener.bind_addr(([0, 0, 0, 0], 7471).into())?;
    listener.listen(1)?;
    let client = a_channel.create_id(PortSpace::Tcp);
    client.set_context(a)?;
    client.resolve_addr(None, listener.listening_addrs()[0], Duration::from_secs(2))?;
    wait(&a_channel, EventKind::AddrResolved)?;
    client.resolve_route(Duration::from_secs(2))?;
    wait(&a_channel, EventKind::RouteResolved)?;
    client.create_qp(None, &CmQpAttr::default())?;
    client.connect(&ConnParam::default())?;
    let request = wait(&b_channel, EventKind::ConnectRequest)?;
    let server = request.id();
    server.create_qp(None, &CmQpAttr::default())?;
    server.accept(&ConnParam::default())?;
    wait(&a_channel, EventKind::Established)?;
    wait(&b_channel, EventKind::Established)?;
    show(
        "connecting as rdma_cm does: A asks for a port, B's program accepts, A confirms; both \
         queue pairs went to RTS on the way",
    );
    client.disconnect()?;
    wait(&b_channel, EventKind::Disconnected)?;
    server.disconnect()?;
    wait(&a_channel, EventKind::Disconnected)?;
    show("disconnecting: A announces the end, B's program agrees; both queue pairs go to ERR");
    Ok(())
}

/// Bulk writes and small round trips, as this host happens to carry them now.
fn figures() -> Result<(), Failure> {
    let (a, b) = (Side::open(OpenOptions::default())?, Side::open(OpenOptions::default())?);
    let (Some(end_a), Some(end_b)) = (a.qp.endpoint(0), b.qp.endpoint(0)) else { return Ok(()) };
    a.qp.connect_to(end_b)?;
    b.qp.connect_to(end_a)?;

    let source = a.pd.allocate(BULK, Access::empty())?;
    let target = b.pd.allocate(BULK, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < BULK_TIMES {
        while posted < BULK_TIMES && posted - done < 8 {
            a.qp.post_send(&[SendWr::write(0, target.remote(0), source.sge_all())])?;
            posted += 1;
        }
        a.complete()?;
        done += 1;
    }
    let gigabytes = (BULK * BULK_TIMES) as f64 / 1e9;
    outln!("\nfigures, on this host just now (path MTU {}):", a.context.active_mtu().bytes());
    outln!(
        "  {:.2} GB/s   RDMA WRITE, {BULK_TIMES} × 1 MiB",
        gigabytes / start.elapsed().as_secs_f64()
    );

    let rounds = 1000;
    let start = Instant::now();
    for _ in 0..rounds {
        b.qp.post_recv(&[RecvWr::new(0, [b.memory.sge(0..64)])])?;
        a.qp.post_recv(&[RecvWr::new(0, [a.memory.sge(0..64)])])?;
        a.qp.post_send(&[SendWr::send(0, a.memory.sge(64..128))])?;
        b.complete()?;
        b.qp.post_send(&[SendWr::send(0, b.memory.sge(64..128))])?;
        // the answer and the completions of both sends
        a.complete()?;
        a.complete()?;
        b.complete()?;
    }
    outln!(
        "  {:.1} µs     64-byte SEND and its answer, {rounds} times",
        start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    );
    Ok(())
}
