//! Two adapters in one process, over UDP on loopback.

use std::time::{Duration, Instant};

use roce::{
    Access, CompletionQueue, Context, Device, MemoryRegion, OpenOptions, ProtectionDomain,
    QpInitAttr, QpType, QueuePair, RecvWr, SendWr, Wc,
};

use crate::{failure::Failure, output::outln};

const BULK: usize = 1 << 20;
const BULK_TIMES: usize = 256;

struct Side {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

impl Side {
    /// Sockets only: figures of the network stack.
    fn open() -> Result<Self, Failure> {
        let options = OpenOptions { sockets_only: true, ..OpenOptions::default() };
        let context = Device::named("roce_lo")?.open(options)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64, None)?;
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.allocate(8192, access)?;
        Ok(Self { context, pd, cq, qp, memory })
    }

    fn complete(&self) -> Result<Wc, Failure> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if let Some(wc) = self.cq.poll_one() {
                wc.result?;
                return Ok(wc);
            }
        }
        Err("no completion in 10 s; check that this host's firewall passes UDP between loopback \
             addresses"
            .into())
    }
}

/// Bulk WRITEs and small round trips.
pub(super) fn run() -> Result<(), Failure> {
    let (a, b) = (Side::open()?, Side::open()?);
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
    outln!("figures, over UDP sockets of this host (path MTU {}):", a.context.active_mtu().bytes());
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
        // the response and both sends
        a.complete()?;
        a.complete()?;
        b.complete()?;
    }
    outln!(
        "  {:.1} µs     64-byte SEND and its response, {rounds} times",
        start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    );
    Ok(())
}
