//! `roce pingpong`: peer of `ibv_rc_pingpong` and its like.

mod session;
mod xrc;

use std::{path::PathBuf, time::Instant};

use clap::ValueEnum;
use roce::{AddressVector, Device, Endpoint, Gid, Mtu, Psn, QpType, Qpn, UdDestination};

use crate::{
    common::{linger, options},
    exchange::{Exchange, connect, gid_index, shown},
    failure::{Failure, fail},
    output::outln,
};
use session::{Plan, QKEY, Session};

const MAX_QP: usize = 256;

/// Send messages back and forth with a peer
///
/// Start it without SERVER on one side, then with the name or address of that side on the other.
/// On one host:
///
///     roce pingpong rc
///     roce pingpong rc 127.0.0.1
///
/// The other side can be ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong or ibv_srq_pingpong, on
/// rxe or an RDMA network adapter; their options are the same. The two sides exchange their
/// addresses over TCP. Both need the same size, path MTU and number of messages.
///
/// With xrc the server sends first, as ibv_xsrq_pingpong does with one client (its default is -n
/// 5). That tool has not been tried: it needs an adapter with XRC, and rxe has none.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// rc, uc, ud, srq (shared receive queue) or xrc
    ///
    /// rc: reliable connection; uc: unreliable connection; ud: unreliable datagrams; srq: several
    /// reliable connections with a shared receive queue; xrc: an extended reliable connection each
    /// way, with an XRC shared receive queue.
    #[arg(hide_possible_values = true)]
    service: Service,
    /// The server; without it, this is the server
    server: Option<String>,
    /// Name from `roce devinfo`, or udp:ADDRESS
    ///
    /// Also raw:INTERFACE[,ip=ADDRESS/LENGTH…], which builds its Ethernet frames itself. By default
    /// the device of the TCP connection to the peer.
    #[arg(short = 'd', long, value_name = "DEV")]
    device: Option<String>,
    /// GID index; default: of the peer's family
    #[arg(short, long, value_name = "GID_INDEX")]
    gid: Option<u16>,
    /// TCP port of the server
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Bytes per message [default: 4096, 2048 for ud]
    #[arg(short, long)]
    size: Option<u32>,
    /// Queue pairs of srq, at both ends
    #[arg(short = 'q', long, default_value_t = 16)]
    num_qp: u32,
    /// Messages each way
    #[arg(short = 'n', long, default_value_t = 1000)]
    iters: u32,
    /// Path MTU, 256 to 4096 [default: 1024]
    ///
    /// 256, 512, 1024, 2048 or 4096; for ud, by default the port's.
    #[arg(short, long)]
    mtu: Option<u32>,
    /// Receive requests kept posted
    #[arg(short, long, default_value_t = 500)]
    rx_depth: u32,
    /// Validate every byte of every message
    #[arg(short, long)]
    chk: bool,
    /// Sleep for completions instead of polling
    #[arg(short, long)]
    events: bool,
    /// Capture every packet into this pcapng file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Damage packets: "drop 3%"
    ///
    /// Packets of this side, in both directions: "drop ack every 7", "delay 2ms", "corrupt 0.1%",
    /// "duplicate 1%", "reorder 5%", "rnr 10%", "drop psn 5..9 once tx"; several with commas
    /// between them.
    #[arg(long, value_name = "FAULTS")]
    fault: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Service {
    Rc,
    Uc,
    Ud,
    Srq,
    Xrc,
}

impl Args {
    fn plan(&self) -> Result<Plan, Failure> {
        let path_mtu = |bytes| {
            Mtu::from_bytes(bytes).ok_or_else(|| {
                format!("{bytes} is not a path MTU; choose 256, 512, 1024, 2048 or 4096")
            })
        };
        let mtu = self.mtu.map(path_mtu).transpose()?;
        if self.iters == 0 || self.rx_depth == 0 {
            return Err("-n and -r must be at least 1".into());
        }
        let (qp_type, size, default_mtu) = match self.service {
            Service::Rc | Service::Srq => (QpType::Rc, 4096, Some(Mtu::B1024)),
            Service::Xrc => (QpType::XrcInitiator, 4096, Some(Mtu::B1024)),
            Service::Uc => (QpType::Uc, 4096, Some(Mtu::B1024)),
            Service::Ud => (QpType::Ud, 2048, None),
        };
        let (size, mtu) = (self.size.unwrap_or(size), mtu.or(default_mtu));
        let shared = self.service == Service::Srq;
        let num_qp = if shared { self.num_qp as usize } else { 1 };
        if !(1..=MAX_QP).contains(&num_qp) || num_qp > self.rx_depth as usize {
            let most = MAX_QP.min(self.rx_depth as usize);
            fail!(
                "-q is out of range; expected 1 to {most}: each queue pair needs one of the {} \
                 receive requests",
                self.rx_depth
            );
        }
        let plan = Plan {
            qp_type,
            num_qp,
            shared,
            size: size as usize,
            iters: self.iters,
            mtu,
            rx_depth: self.rx_depth,
            validate: self.chk,
            events: self.events,
        };
        plan.check_datagram(mtu.unwrap_or(Mtu::B4096))?;
        Ok(plan)
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let plan = args.plan()?;
    let options = options(args.pcap.as_deref(), &args.fault)?;
    // Report errors before contacting the peer.
    let named = match &args.device {
        Some(spec) => Ok(Device::named(spec)?.open(options)?),
        None => Err(options),
    };
    let mut exchange = match &args.server {
        Some(server) => Exchange::connect("ping-pong", server, args.port)?,
        None => Exchange::accept(&Exchange::listen(args.port)?)?,
    };
    let local = exchange.local()?.ip().to_canonical();
    let context = match named {
        Ok(context) => context,
        Err(options) => Device::for_local(local)?.open(options)?,
    };
    plan.check_datagram(context.active_mtu())?;
    let gid_index = args.gid.unwrap_or_else(|| gid_index(&context, local));

    let mut session = Session::new(&context, plan, exchange.is_client)?;
    let plan = &session.plan;
    if plan.qp_type == QpType::XrcInitiator {
        xrc::connect(&mut session, &mut exchange, gid_index)?;
        play(&mut session)?;
        exchange.end_xrc()?;
        linger(&context);
        return Ok(());
    }
    let endpoints = session.pairs.iter().map(|qp| qp.endpoint(gid_index));
    let mut ours: Vec<_> = endpoints.collect::<Option<_>>().ok_or_else(|| {
        let (device, count) = (context.name(), context.gids().len());
        format!("GID index {gid_index} does not exist; {device} has {count}")
    })?;
    for endpoint in &ours {
        outln!("  local address:  {}", shown(endpoint));
    }
    if plan.shared {
        let (gid, qpn, psn) = (Gid::default(), Qpn::default(), Psn::default());
        ours.resize(MAX_QP, Endpoint { gid, qpn, psn });
    }
    let mtu = plan.mtu.unwrap_or(Mtu::B1024);
    let theirs = exchange.swap(&ours, |theirs| {
        for ((qp, ours), theirs) in session.pairs.iter().zip(&ours).zip(theirs) {
            connect(qp, mtu, 1, gid_index, ours.psn, theirs)?;
        }
        Ok(())
    })?;
    for endpoint in &theirs[..plan.num_qp] {
        outln!("  remote address: {}", shown(endpoint));
    }
    if plan.qp_type == QpType::Ud {
        let Endpoint { gid, qpn, .. } = theirs[0];
        let av = AddressVector::new(gid, gid_index);
        session.destination = Some(UdDestination::new(av, qpn, QKEY));
    }

    play(&mut session)?;
    linger(&context);
    Ok(())
}

fn play(session: &mut Session) -> Result<(), Failure> {
    let start = Instant::now();
    session.play()?;
    let seconds = start.elapsed().as_secs_f64();
    let Plan { size, iters, .. } = session.plan;
    let bytes = size as f64 * f64::from(iters) * 2.0;
    outln!(
        "{bytes:.0} bytes in {seconds:.2} seconds = {:.2} Mbit/sec",
        bytes * 8.0 / 1e6 / seconds
    );
    outln!(
        "{iters} iters in {seconds:.2} seconds = {:.2} usec/iter",
        seconds * 1e6 / f64::from(iters)
    );
    Ok(())
}
