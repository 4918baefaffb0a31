//! `roce rping`: the exchange of the stock `rping`, in either role.
//!
//! The client tells where its source buffer is, the server READs it and says "go ahead"; the client
//! tells where its sink buffer is, the server WRITEs there what it has read, and says "go ahead"
//! again.

use std::{collections::VecDeque, net::SocketAddr};

use roce::{
    Access, Context, Init, MemoryRegion, PeerAttr, QpCaps, QpInitAttr, QpType, QueuePair, RKey,
    RecvWr, Remote, RequesterAttr, ResponderAttr, Rtr, Rts, SendWr, Wc, WcOpcode, WcStatus,
    cm::{CmId, CmQpAttr, ConnParam, EventChannel, EventKind, IdState, PortSpace},
};

use crate::{
    common::{self, EventLoop, LinkArgs, Ready},
    failure::Failure,
    output::{errln, outln},
};

/// Room for "rdma-ping-", a number, ": ", and a zero byte.
const SIZES: std::ops::RangeInclusive<usize> = 23..=65535;

/// Connect, and let the server read from and write to the client's memory.
///
/// On one host, in two terminals:
///
///     roce rping -s
///     roce rping -c -a 127.0.0.1 -C 10 -v
///
/// The other side may as well be the stock rping, on the kernel's rxe or on an RDMA network
/// adapter; options mean what they mean there.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(group(clap::ArgGroup::new("role").required(true).args(["server", "client"])))]
pub(crate) struct Args {
    /// Be the server: wait for a client
    #[arg(short)]
    server: bool,
    /// Be the client: connect to the server at ADDRESS
    #[arg(short, requires = "address")]
    client: bool,
    /// The server's address, for both sides. Without it the server listens on every IPv4 address;
    /// `-a ::0` for every IPv6 one
    #[arg(short, value_name = "ADDRESS")]
    address: Option<String>,
    /// The client's own address
    #[arg(short = 'I', value_name = "ADDRESS", conflicts_with = "server")]
    source: Option<String>,
    /// The server's port
    #[arg(short, default_value_t = 7174)]
    port: u16,
    /// How often; without it until someone ends it
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Bytes of the buffers, 23 to 65535. The server's must not be smaller than the client's
    #[arg(short = 'S', value_name = "SIZE", default_value_t = 64)]
    size: usize,
    /// Print the ping data
    #[arg(short)]
    verbose: bool,
    /// Validate the ping data, every byte
    #[arg(short = 'V')]
    validate: bool,
    /// Print what happens
    #[arg(short)]
    debug: bool,
    /// The server serves many clients, also at once, until it is ended
    #[arg(short = 'P', conflicts_with = "client")]
    persistent: bool,
    /// Make and move the queue pair here, instead of in the connection manager
    #[arg(short = 'q')]
    own_qp: bool,
    #[command(flatten)]
    link: LinkArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if !SIZES.contains(&args.size) {
        let (size, least, most) = (args.size, SIZES.start(), SIZES.end());
        return Err(format!("invalid size {size}; choose one of {least} to {most} with -S").into());
    }
    let context = args.link.open()?;
    let channel = EventChannel::new()?;
    match &args.address {
        Some(server) if args.client => {
            Ping::connect(&args, &channel, context.as_ref(), common::address(server, args.port)?)?
                .ask()
        }
        _ => serve(args, &channel, context.as_ref()),
    }
}

/// Waits for clients and serves them, one after the other ends it unless there are to be many.
fn serve(args: Args, channel: &EventChannel, context: Option<&Context>) -> Result<(), Failure> {
    let listener = channel.create_id(PortSpace::Tcp);
    common::place(&listener, context)?;
    listener
        .bind_addr(common::address(args.address.as_deref().unwrap_or("0.0.0.0"), args.port)?)?;
    listener.listen(0)?;
    debug(&args, || format!("listening on port {}", listener.src_port()));
    let args = std::sync::Arc::new(args);
    loop {
        let event = channel.wait(None)?;
        match event.kind() {
            EventKind::ConnectRequest if args.persistent => {
                let own = EventChannel::new()?;
                let id = event.id().clone();
                id.migrate_id(&own);
                let args = args.clone();
                std::thread::spawn(move || {
                    if let Err(error) = Ping::accept(&args, &own, id).and_then(Ping::answer) {
                        errln!("roce: {error}");
                    }
                });
            }
            EventKind::ConnectRequest => {
                return Ping::accept(&args, channel, event.id().clone())?.answer();
            }
            EventKind::AddrChange => {}
            _ => return Err(common::unexpected(&event, None)),
        }
    }
}

fn debug(args: &Args, text: impl FnOnce() -> String) {
    if args.debug {
        outln!("{}", text());
    }
}

/// What a side tells about its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Info {
    at: Remote,
    size: u32,
}

impl Info {
    const LEN: usize = 16;

    fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.at.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.at.rkey.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    fn decode(bytes: [u8; Self::LEN]) -> Self {
        let number = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let address = u64::from(number(0)) << 32 | u64::from(number(4));
        Self { at: Remote { address, rkey: RKey(number(8)) }, size: number(12) }
    }
}

/// Identifiers of requests.
const RECV: u64 = 1;
const SEND: u64 = 2;
const READ: u64 = 3;
const WRITE: u64 = 4;

/// One connection.
struct Ping<'a> {
    args: &'a Args,
    id: CmId,
    context: Context,
    qp: QueuePair,
    ears: EventLoop,
    /// What the peer tells, and what we tell it.
    told: MemoryRegion,
    telling: MemoryRegion,
    /// The client's source, and its sink; the server has one buffer.
    source: MemoryRegion,
    sink: MemoryRegion,
    /// What was told and not looked at yet.
    inbox: VecDeque<Info>,
    is_over: bool,
}

impl<'a> Ping<'a> {
    /// Makes the queue pair and the buffers for an id.
    fn new(args: &'a Args, channel: &EventChannel, id: CmId) -> Result<Self, Failure> {
        let context = id.context().ok_or("the id has no device")?;
        let ears = EventLoop::new(&context, 64, channel)?;
        let caps = QpCaps {
            max_send_wr: 16,
            max_recv_wr: 2,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = if args.own_qp {
            let qp = id
                .pd()?
                .create_qp(&QpInitAttr { caps, ..QpInitAttr::new(QpType::Rc, &ears.cq) })?;
            qp.to_init(Init {
                access: Access::REMOTE_READ | Access::REMOTE_WRITE,
                ..Init::default()
            })?;
            qp
        } else {
            let cq = Some(ears.cq.clone());
            id.create_qp(
                None,
                &CmQpAttr { send_cq: cq.clone(), recv_cq: cq, caps, ..CmQpAttr::default() },
            )?;
            id.qp().ok_or("the id has no queue pair")?
        };
        debug(args, || format!("created qp {:#x}", qp.qpn().get()));
        let (told, telling) = (id.reg_msgs(Info::LEN)?, id.reg_msgs(Info::LEN)?);
        let (source, sink) = (id.reg_read(args.size)?, id.reg_write(args.size)?);
        let (inbox, is_over) = (VecDeque::new(), false);
        let ping =
            Self { args, id, context, qp, ears, told, telling, source, sink, inbox, is_over };
        ping.listen()?;
        Ok(ping)
    }

    /// Connects to a server.
    fn connect(
        args: &'a Args,
        channel: &EventChannel,
        context: Option<&Context>,
        server: SocketAddr,
    ) -> Result<Self, Failure> {
        let id = channel.create_id(PortSpace::Tcp);
        let own = args.source.as_deref().map(|own| common::address(own, 0)).transpose()?;
        if own.is_none() {
            common::place(&id, context)?;
        }
        common::resolve(&id, channel, own, server)?;
        debug(args, || "rdma_resolve_addr - rdma_resolve_route successful".into());
        let ping = Self::new(args, channel, id)?;
        ping.id.connect(&ping.param())?;
        if args.own_qp {
            common::expect(channel, EventKind::ConnectResponse, server)?;
            ping.move_qp()?;
            ping.id.establish()?;
        } else {
            common::expect(channel, EventKind::Established, server)?;
        }
        debug(args, || "rdma_connect successful".into());
        Ok(ping)
    }

    /// Accepts a client.
    fn accept(args: &'a Args, channel: &EventChannel, id: CmId) -> Result<Self, Failure> {
        debug(args, || "accepting client connection request".into());
        let mut ping = Self::new(args, channel, id)?;
        ping.id.accept(&ping.param())?;
        if args.own_qp {
            // what the client sends before that, it sends again
            ping.move_qp()?;
        }
        // A client's first message may be here before its confirmation.
        while ping.id.state() == IdState::Accepted && !ping.is_over {
            ping.hear()?;
        }
        Ok(ping)
    }

    fn param(&self) -> ConnParam {
        let qpn = self.args.own_qp.then(|| self.qp.qpn());
        ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            qpn,
            ..ConnParam::default()
        }
    }

    /// Moves a queue pair that the id does not know.
    fn move_qp(&self) -> Result<(), Failure> {
        let setup = self.id.qp_setup().ok_or("the connection is gone")?;
        let path_mtu = setup.path_mtu.ok_or("the peer asks for a path MTU that there is not")?;
        self.qp.to_rtr(Rtr::Rc(
            PeerAttr { dest_qpn: setup.dest_qpn, path_mtu, rq_psn: setup.rq_psn, av: setup.av },
            ResponderAttr {
                max_dest_rd_atomic: setup.max_dest_rd_atomic,
                min_rnr_timer: setup.min_rnr_timer,
            },
        ))?;
        self.qp.to_rts(Rts::Rc(
            setup.sq_psn,
            RequesterAttr {
                timeout: setup.timeout,
                retry_cnt: setup.retry_cnt,
                rnr_retry: setup.rnr_retry,
                max_rd_atomic: setup.max_rd_atomic,
            },
        ))?;
        Ok(())
    }

    /// The client's part.
    fn ask(mut self) -> Result<(), Failure> {
        let size = self.args.size;
        for number in 0..self.args.count.unwrap_or(u32::MAX) {
            let data = ping_data(number, size);
            self.source.write_at(0, &data)?;
            self.sink.fill(0)?;
            for buffer in [self.source.clone(), self.sink.clone()] {
                let info = Info { at: buffer.remote(0), size: size as u32 };
                debug(self.args, || {
                    format!(
                        "RDMA addr {:x} rkey {:x} len {}",
                        info.at.address, info.at.rkey.0, info.size
                    )
                });
                self.telling.write_at(0, &info.encode())?;
                self.qp.post_send(&[SendWr::send(SEND, self.telling.sge_all())])?;
                while self.inbox.is_empty() {
                    self.hear()?;
                    if self.is_over {
                        return Err(
                            "the server has ended the connection; see what it printed".into()
                        );
                    }
                }
                self.inbox.clear();
            }
            let got = self.sink.to_vec(0..size)?;
            if self.args.validate
                && let Some(at) = (0..size).find(|&at| got[at] != data[at])
            {
                let (got, wanted) = (got[at], data[at]);
                return Err(format!(
                    "data mismatch! ping {number}: byte {at} is {got:#04x} instead of {wanted:#04x}"
                )
                .into());
            }
            if self.args.verbose {
                outln!("ping data: {}", text(&got));
            }
        }
        self.id.disconnect()?;
        while !self.is_over {
            self.hear()?;
        }
        common::linger(&self.context);
        Ok(())
    }

    /// The server's part, until the client ends it.
    fn answer(mut self) -> Result<(), Failure> {
        let (args, size) = (self.args, self.args.size);
        loop {
            let Some(source) = self.next_info()? else { break };
            if source.size as usize > size {
                return Err(format!(
                    "the client's buffer has {} bytes; start this server with -S {0} or more",
                    source.size
                )
                .into());
            }
            debug(args, || "server received source adv".into());
            let length = source.size as usize;
            let Some(()) =
                self.do_one(READ, SendWr::read(READ, source.at, self.sink.sge(0..length)))?
            else {
                break;
            };
            debug(args, || "server received read complete".into());
            let data = self.sink.to_vec(0..length)?;
            if args.verbose {
                outln!("server ping data: {}", text(&data));
            }
            self.go_ahead()?;
            let Some(sink) = self.next_info()? else { break };
            debug(args, || "server received sink adv".into());
            // as the stock server: with the zero byte, and nothing behind it
            let length = (text(&data).len() + 1).min(data.len());
            let Some(()) =
                self.do_one(WRITE, SendWr::write(WRITE, sink.at, self.sink.sge(0..length)))?
            else {
                break;
            };
            debug(args, || "server rdma write complete".into());
            self.go_ahead()?;
        }
        errln!("server DISCONNECT EVENT...");
        let _ = self.id.disconnect(); // it may be over altogether
        common::linger(&self.context);
        Ok(())
    }

    fn go_ahead(&self) -> Result<(), Failure> {
        self.qp.post_send(&[SendWr::send(SEND, self.telling.sge_all())])?;
        debug(self.args, || "server posted go ahead".into());
        Ok(())
    }

    /// What the client tells next; `None` when it has gone.
    fn next_info(&mut self) -> Result<Option<Info>, Failure> {
        while self.inbox.is_empty() && !self.is_over {
            self.hear()?;
        }
        Ok(self.inbox.pop_front())
    }

    /// Does something and waits for its end; `None` when the client goes meanwhile.
    fn do_one(&mut self, id: u64, request: SendWr) -> Result<Option<()>, Failure> {
        self.qp.post_send(&[request])?;
        while !self.is_over {
            if self.hear()? == Some(id) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    }

    fn listen(&self) -> Result<(), Failure> {
        Ok(self.qp.post_recv(&[RecvWr::new(RECV, [self.told.sge_all()])])?)
    }

    /// Takes what comes next; the request that has completed, if one has.
    fn hear(&mut self) -> Result<Option<u64>, Failure> {
        match self.ears.next()? {
            Ready::Done(wc) => self.complete(&wc),
            Ready::Event(event) => {
                debug(self.args, || {
                    format!("cma_event type {} ({})", event.kind(), event.status())
                });
                match event.kind() {
                    EventKind::Disconnected => self.is_over = true,
                    EventKind::Established | EventKind::TimewaitExit | EventKind::AddrChange => {}
                    // another client of a server that serves one
                    EventKind::ConnectRequest => event.id().reject(&[])?,
                    _ => return Err(common::unexpected(&event, None)),
                }
                Ok(None)
            }
        }
    }

    fn complete(&mut self, wc: &Wc) -> Result<Option<u64>, Failure> {
        let ok = match wc.result {
            Ok(ok) => ok,
            // the connection's end, of which an event tells
            Err(error) if error.status == WcStatus::WrFlushErr => return Ok(None),
            Err(error) => {
                return Err(
                    format!("cq completion failed status {}: {error}", error.status as u8).into()
                );
            }
        };
        if ok.opcode == WcOpcode::Recv {
            if ok.byte_len as usize != Info::LEN {
                return Err(format!(
                    "received bogus data, size {}; the other side is no rping",
                    ok.byte_len
                )
                .into());
            }
            let mut bytes = [0; Info::LEN];
            self.told.read_at(0, &mut bytes)?;
            let info = Info::decode(bytes);
            debug(self.args, || {
                format!(
                    "Received rkey {:x} addr {:x} len {} from peer",
                    info.at.rkey.0, info.at.address, info.size
                )
            });
            self.inbox.push_back(info);
            self.listen()?;
        }
        Ok(Some(wc.wr_id))
    }
}

/// What a client has in its source buffer: a number, letters that begin at another one each time,
/// and a zero byte.
fn ping_data(number: u32, size: usize) -> Vec<u8> {
    const LETTERS: u32 = (b'z' - b'A') as u32 + 1;
    let mut data = format!("rdma-ping-{number}: ").into_bytes();
    data.truncate(size);
    let head = data.len();
    data.extend(
        (head..size).map(|at| b'A' + ((number % LETTERS + (at - head) as u32) % LETTERS) as u8),
    );
    data[size - 1] = 0;
    data
}

/// The text before the first zero byte.
fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_what_the_stock_tool_sends() {
        let bytes = [0, 0, 0x55, 0xD0, 1, 2, 3, 4, 0, 0, 0x12, 0x34, 0, 0, 0, 100];
        let info = Info::decode(bytes);
        assert_eq!(
            info,
            Info { at: Remote { address: 0x55D0_0102_0304, rkey: RKey(0x1234) }, size: 100 }
        );
        assert_eq!(info.encode(), bytes);
    }

    #[test]
    fn ping_data_is_what_the_stock_tool_sends() {
        assert_eq!(text(&ping_data(0, 32)), "rdma-ping-0: ABCDEFGHIJKLMNOPQR");
        assert_eq!(text(&ping_data(57, 23)), "rdma-ping-57: zABCDEFG");
        assert_eq!(text(&ping_data(58, 23)), "rdma-ping-58: ABCDEFGH");
        assert_eq!(ping_data(u32::MAX, 23).len(), 23);
    }
}
