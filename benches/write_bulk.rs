//! Throughput of 64 KiB RDMA WRITEs over loopback, beside a bare UDP pump of the same datagrams.
//!
//! The pump sends runs with `UDP_SEGMENT` and counts datagrams of `UDP_GRO`, without protocol, CRC
//! or regions: the ratio is the protocol's cost. Rounds alternate, and medians are compared,
//! because machines vary.

mod pump;

use std::{
    error::Error,
    time::{Duration, Instant},
};

use pump::Pump;
use roce::{Access, Device, OpenOptions, ProtectionDomain, QpInitAttr, QpType, SendWr};

const MESSAGE: usize = 64 << 10;
/// Outstanding requests.
const DEPTH: usize = 16;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::new(false, true)?;
    let mut foreign = Writer::new(true, true)?;
    let mut sharing = Writer::new(false, false)?;
    let mut pump = Pump::new(4096)?;
    let (mut ours, mut theirs, mut shared, mut bare) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(writer.round()?);
        theirs.push(foreign.round()?);
        shared.push(sharing.round()?);
        bare.push(pump.round(ROUND)?);
    }
    let (ours, theirs, shared, bare) =
        (median(&mut ours), median(&mut theirs), median(&mut shared), median(&mut bare));
    println!("64 KiB RDMA WRITE, path MTU 4096, {DEPTH} outstanding:  {ours:6.2} GB/s");
    println!("the same between memory that the program owns:    {theirs:6.2} GB/s");
    println!("the same through shared memory:                   {shared:6.2} GB/s");
    println!("bare UDP pump of the same datagrams:              {bare:6.2} GB/s");
    println!(
        "ratios, medians of {ROUNDS} rounds each in one run:       {:6.2} through sockets, {:.2} shared",
        ours / bare,
        shared / bare
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two devices; the target's program is idle.
struct Writer {
    source: roce::MemoryRegion,
    target: roce::MemoryRegion,
    qp: roce::QueuePair,
    cq: roce::CompletionQueue,
    _peer: roce::QueuePair,
}

impl Writer {
    /// `foreign`: memory of the program, not the adapter.
    fn new(foreign: bool, sockets_only: bool) -> Result<Self, Box<dyn Error>> {
        let open = || {
            Device::named("roce_lo")?.open(OpenOptions { sockets_only, ..OpenOptions::default() })
        };
        let (a, b) = (open()?, open()?);
        let (pd_a, pd_b) = (a.alloc_pd()?, b.alloc_pd()?);
        let (cq, cq_b) = (a.create_cq(64, None)?, b.create_cq(64, None)?);
        let register = |pd: &ProtectionDomain, access| {
            if !foreign {
                return pd.allocate(MESSAGE * DEPTH, access);
            }
            let pointer = vec![0_u64; MESSAGE * DEPTH / 8].leak().as_mut_ptr().cast::<u8>();
            // SAFETY: leaked memory; nothing else refers to it
            unsafe { pd.register_raw(pointer, MESSAGE * DEPTH, pointer as u64, access) }
        };
        let source = register(&pd_a, Access::empty())?;
        let target = register(&pd_b, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let qp = pd_a.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;
        let peer = pd_b.create_qp(&QpInitAttr::new(QpType::Rc, &cq_b))?;
        let (end, peer_end) =
            (qp.endpoint(0).ok_or("no address")?, peer.endpoint(0).ok_or("no address")?);
        qp.connect_to(peer_end)?;
        peer.connect_to(end)?;
        Ok(Self { source, target, qp, cq, _peer: peer })
    }

    /// Gigabytes per second.
    fn round(&mut self) -> Result<f64, Box<dyn Error>> {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while start.elapsed() < ROUND || done < posted {
            while posted - done < DEPTH && start.elapsed() < ROUND {
                let at = posted % DEPTH * MESSAGE;
                let piece = self.source.sge(at..at + MESSAGE);
                self.qp.post_send(&[SendWr::write(
                    posted as u64,
                    self.target.remote(at),
                    piece,
                )])?;
                posted += 1;
            }
            while let Some(wc) = self.cq.poll_one() {
                wc.result?;
                done += 1;
            }
        }
        Ok((done * MESSAGE) as f64 / start.elapsed().as_secs_f64() / 1e9)
    }
}
