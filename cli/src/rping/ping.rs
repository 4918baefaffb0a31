use std::{collections::VecDeque, net::SocketAddr};

use roce::{
    Access, Context, Init, MemoryRegion, PeerAttr, QpInitAttr, QpType, QueuePair, RecvWr,
    RequesterAttr, ResponderAttr, Rtr, Rts, SendWr, Wc, WcOpcode, WcStatus,
    cm::{CmId, ConnParam, EventChannel, EventKind, IdState, PortSpace},
    transport::cm::QpSetup,
};

use super::{
    args::Args,
    message::{Info, ping_data, text},
};
use crate::{
    common::{self, EventLoop, Events, Ready},
    failure::{Failure, fail},
    output::{errln, outln},
};

const RECV: u64 = 1;
const SEND: u64 = 2;
const READ: u64 = 3;
const WRITE: u64 = 4;

pub(super) struct Ping<'a> {
    args: &'a Args,
    id: CmId,
    context: Context,
    qp: QueuePair,
    event_loop: EventLoop,
    recv_buffer: MemoryRegion,
    send_buffer: MemoryRegion,
    /// The client's; the server has one buffer.
    source: MemoryRegion,
    sink: MemoryRegion,
    inbox: VecDeque<Info>,
    is_over: bool,
}

impl<'a> Ping<'a> {
    fn new(args: &'a Args, channel: &EventChannel, id: CmId) -> Result<Self, Failure> {
        let context = id.context().ok_or("the id has no device")?;
        let event_loop = EventLoop::new(&context, 64, channel)?;
        let caps = common::caps(16, 2);
        let qp = if args.own_qp {
            let attr = QpInitAttr { caps, ..QpInitAttr::new(QpType::Rc, &event_loop.cq) };
            let qp = id.pd()?.create_qp(&attr)?;
            let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
            qp.to_init(Init { access, ..Init::default() })?;
            qp
        } else {
            common::create_qp(&id, None, &event_loop.cq, caps)?
        };
        args.debug(format_args!("created qp {:#x}", qp.qpn().get()));
        let (recv_buffer, send_buffer) = (id.reg_msgs(Info::LEN)?, id.reg_msgs(Info::LEN)?);
        let (source, sink) = (id.reg_read(args.size)?, id.reg_write(args.size)?);
        let ping = Self {
            args,
            id,
            context,
            qp,
            event_loop,
            recv_buffer,
            send_buffer,
            source,
            sink,
            inbox: VecDeque::new(),
            is_over: false,
        };
        ping.listen()?;
        Ok(ping)
    }

    pub(super) fn connect(
        args: &'a Args,
        events: &Events,
        server: SocketAddr,
    ) -> Result<Self, Failure> {
        let id = events.channel.create_id(PortSpace::Tcp);
        let own = args.source.as_deref().map(|own| common::address(own, 0)).transpose()?;
        if own.is_none() {
            events.use_device(&id)?;
        }
        events.resolve(&id, own, server)?;
        args.debug(format_args!("rdma_resolve_addr - rdma_resolve_route successful"));
        let ping = Self::new(args, &events.channel, id)?;
        ping.id.connect(&ping.param())?;
        if args.own_qp {
            events.expect(EventKind::ConnectResponse, server)?;
            ping.move_qp()?;
            ping.id.establish()?;
        } else {
            events.expect(EventKind::Established, server)?;
        }
        args.debug(format_args!("rdma_connect successful"));
        Ok(ping)
    }

    pub(super) fn accept(
        args: &'a Args,
        channel: &EventChannel,
        id: CmId,
    ) -> Result<Self, Failure> {
        args.debug(format_args!("accepting client connection request"));
        let mut ping = Self::new(args, channel, id)?;
        ping.id.accept(&ping.param())?;
        if args.own_qp {
            // The client retransmits earlier messages.
            ping.move_qp()?;
        }
        // A client's first message may precede its RTU.
        while ping.id.state() == IdState::Accepted && !ping.is_over {
            ping.step()?;
        }
        Ok(ping)
    }

    fn param(&self) -> ConnParam {
        ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            qpn: self.args.own_qp.then(|| self.qp.qpn()),
            ..ConnParam::default()
        }
    }

    fn move_qp(&self) -> Result<(), Failure> {
        let setup = self.id.qp_setup().ok_or("the connection is closed")?;
        let path_mtu = setup.path_mtu.ok_or("the peer requests an invalid path MTU")?;
        let QpSetup { dest_qpn, rq_psn, sq_psn, av, max_dest_rd_atomic, min_rnr_timer, .. } = setup;
        let QpSetup { timeout, retry_cnt, rnr_retry, max_rd_atomic, .. } = setup;
        let responder = ResponderAttr { max_dest_rd_atomic, min_rnr_timer };
        self.qp.to_rtr(Rtr::Rc(PeerAttr { dest_qpn, path_mtu, rq_psn, av }, responder))?;
        let requester = RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic };
        Ok(self.qp.to_rts(Rts::Rc(sq_psn, requester))?)
    }

    pub(super) fn run_client(mut self) -> Result<(), Failure> {
        let size = self.args.size;
        for number in 0..self.args.count.unwrap_or(u32::MAX) {
            let data = ping_data(number, size);
            self.source.write_at(0, &data)?;
            self.sink.fill(0)?;
            for buffer in [self.source.clone(), self.sink.clone()] {
                let info = Info { at: buffer.remote(0), size: size as u32 };
                self.args.debug(format_args!(
                    "RDMA addr {:x} rkey {:x} len {}",
                    info.at.address, info.at.rkey.0, info.size
                ));
                self.send_buffer.write_at(0, &info.encode())?;
                self.qp.post_send(&[SendWr::send(SEND, self.send_buffer.sge_all())])?;
                while self.inbox.is_empty() {
                    self.step()?;
                    if self.is_over {
                        return Err("the server closed the connection; see its output".into());
                    }
                }
                self.inbox.clear();
            }
            let got = self.sink.to_vec(0..size)?;
            if self.args.validate
                && let Some(at) = (0..size).find(|&at| got[at] != data[at])
            {
                let (got, wanted) = (got[at], data[at]);
                fail!(
                    "data mismatch! ping {number}: byte {at} is {got:#04x}, expected {wanted:#04x}"
                );
            }
            if self.args.verbose {
                outln!("ping data: {}", text(&got));
            }
        }
        self.id.disconnect()?;
        while !self.is_over {
            self.step()?;
        }
        common::linger(&self.context);
        Ok(())
    }

    pub(super) fn run_server(mut self) -> Result<(), Failure> {
        let (args, size) = (self.args, self.args.size);
        loop {
            let Some(source) = self.next_info()? else { break };
            if source.size as usize > size {
                fail!(
                    "the client's buffer has {} bytes; start this server with -S {0} or more",
                    source.size
                );
            }
            args.debug(format_args!("server received source adv"));
            let length = source.size as usize;
            let read = SendWr::read(READ, source.at, self.sink.sge(0..length));
            let Some(()) = self.do_one(read)? else { break };
            args.debug(format_args!("server received read complete"));
            let data = self.sink.to_vec(0..length)?;
            if args.verbose {
                outln!("server ping data: {}", text(&data));
            }
            self.go_ahead()?;
            let Some(sink) = self.next_info()? else { break };
            args.debug(format_args!("server received sink adv"));
            // As the stock server: up to and with the zero byte.
            let length = (text(&data).len() + 1).min(data.len());
            let write = SendWr::write(WRITE, sink.at, self.sink.sge(0..length));
            let Some(()) = self.do_one(write)? else { break };
            args.debug(format_args!("server rdma write complete"));
            self.go_ahead()?;
        }
        errln!("server DISCONNECT EVENT...");
        let _ = self.id.disconnect(); // perhaps ended
        common::linger(&self.context);
        Ok(())
    }

    fn go_ahead(&self) -> Result<(), Failure> {
        self.qp.post_send(&[SendWr::send(SEND, self.send_buffer.sge_all())])?;
        self.args.debug(format_args!("server posted go ahead"));
        Ok(())
    }

    /// `None`: the client has gone.
    fn next_info(&mut self) -> Result<Option<Info>, Failure> {
        while self.inbox.is_empty() && !self.is_over {
            self.step()?;
        }
        Ok(self.inbox.pop_front())
    }

    /// `None`: the client has gone.
    fn do_one(&mut self, request: SendWr) -> Result<Option<()>, Failure> {
        let id = request.wr_id;
        self.qp.post_send(&[request])?;
        while !self.is_over {
            if self.step()? == Some(id) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    }

    fn listen(&self) -> Result<(), Failure> {
        Ok(self.qp.post_recv(&[RecvWr::new(RECV, [self.recv_buffer.sge_all()])])?)
    }

    /// Handles a completion or event; returns a completed request's id.
    fn step(&mut self) -> Result<Option<u64>, Failure> {
        match self.event_loop.next()? {
            Ready::Done(wc) => self.complete(&wc),
            Ready::Event(event) => {
                let (kind, status) = (event.kind(), event.status());
                self.args.debug(format_args!("cma_event type {kind} ({status})"));
                match kind {
                    EventKind::Disconnected => self.is_over = true,
                    EventKind::Established | EventKind::TimewaitExit | EventKind::AddrChange => {}
                    // a server for one client refuses others
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
            // An event reports the connection's end.
            Err(error) if error.status == WcStatus::WrFlushErr => return Ok(None),
            Err(error) => {
                fail!("cq completion failed status {}: {error}", error.status as u8);
            }
        };
        if ok.opcode == WcOpcode::Recv {
            if ok.byte_len as usize != Info::LEN {
                fail!("received bogus data, size {}; the peer is not rping", ok.byte_len);
            }
            let mut bytes = [0; Info::LEN];
            self.recv_buffer.read_at(0, &mut bytes)?;
            let info = Info::decode(bytes);
            self.args.debug(format_args!(
                "Received rkey {:x} addr {:x} len {} from peer",
                info.at.rkey.0, info.at.address, info.size
            ));
            self.inbox.push_back(info);
            self.listen()?;
        }
        Ok(Some(wc.wr_id))
    }
}
