//! `roce ucmatose`, like the stock `ucmatose`: once all connections stand, the server sends its
//! messages, the client as many, and the server disconnects.

use std::{net::SocketAddr, time::Instant};

use clap::ValueEnum;
use roce::{
    Access, Context, MemoryRegion, ProtectionDomain, RecvWr, SendWr, WcOpcode,
    cm::{CmEvent, CmId, ConnParam, EventChannel, EventKind, PortSpace},
};

use crate::{
    common::{self, EndArgs, EventLoop, Events, LinkArgs, MessageArgs, Ready},
    failure::Failure,
    output::{errln, outln},
};

/// Connect, exchange messages, and disconnect
///
/// On one host, in two terminals:
///
///     roce ucmatose -c 100
///     roce ucmatose -c 100 -s 127.0.0.1
///
/// The other side can be rdma-core's ucmatose, on rxe or an RDMA network adapter; its options are
/// the same. Both sides need the same number of connections, and number and size of messages.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    end: EndArgs,
    /// Port space
    #[arg(short = 'P', value_enum, default_value_t = Space::Tcp)]
    port_space: Space,
    /// Connections
    #[arg(short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    #[command(flatten)]
    messages: MessageArgs,
    /// The server's port
    #[arg(short, default_value_t = 7471)]
    port: u16,
    /// Migrate every id to another event channel
    #[arg(short)]
    migrate: bool,
    /// Acknowledge timeout, code 0 to 31
    ///
    /// 4.096 µs · 2^code.
    #[arg(short = 'a', value_name = "CODE")]
    ack_timeout: Option<u8>,
    #[command(flatten)]
    link: LinkArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Space {
    Tcp,
    Ib,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let events = args.link.open()?;
    let test = match args.end.server(args.port)? {
        Some(server) => connect(args, server, &events),
        None => accept(args, &events),
    }?;
    test.play(args)?;
    outln!("test complete");
    outln!("return status 0");
    Ok(())
}

impl Args {
    fn id(&self, events: &Events) -> Result<CmId, Failure> {
        let space = match self.port_space {
            Space::Tcp => PortSpace::Tcp,
            Space::Ib => PortSpace::Ib,
        };
        let id = self.end.id(events, space)?;
        if let Some(code) = self.ack_timeout {
            id.set_ack_timeout(code).map_err(|_| {
                format!("{code} is not an acknowledge timeout; choose one of 0 to 31 with -a")
            })?;
        }
        Ok(id)
    }
}

fn connect(args: &Args, server: SocketAddr, events: &Events) -> Result<Test, Failure> {
    outln!("cmatose: starting client");
    let own = args.end.own()?;
    outln!("cmatose: connecting");
    let mut begun = None;
    for _ in 0..args.connections {
        let id = args.id(events)?;
        events.resolve(&id, own, server)?;
        // The first id's shared objects are not part of the time.
        begun.get_or_insert(Test::new(args, events, &id, true)?);
        if let Some(test) = &mut begun {
            test.begin(args, id)?;
        }
    }
    let mut test = begun.ok_or("-c 0 makes no connection; use at least 1")?;
    for id in &test.ids {
        id.connect(&param())?;
    }
    test.wait_for_all(args)?;
    Ok(test)
}

fn accept(args: &Args, events: &Events) -> Result<Test, Failure> {
    outln!("cmatose: starting server");
    let listener = args.id(events)?;
    args.end.listen(&listener, args.port)?;
    let first = events.next_request()?.id().clone();
    let mut test = Test::new(args, events, &first, false)?;
    test.begin(args, first)?;
    test.ids[0].accept(&param())?;
    test.wait_for_all(args)?;
    Ok(test)
}

fn param() -> ConnParam {
    ConnParam { responder_resources: 1, initiator_depth: 1, retry_count: 5, ..ConnParam::default() }
}

struct Test {
    ids: Vec<CmId>,
    is_client: bool,
    context: Context,
    pd: ProtectionDomain,
    event_loop: EventLoop,
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
    sent: u64,
    received: u64,
    disconnected: usize,
    start: Instant,
    before: u64,
}

impl Test {
    fn new(args: &Args, events: &Events, id: &CmId, is_client: bool) -> Result<Self, Failure> {
        let context = id.context().ok_or("the id has no device")?;
        let completions = args.connections as usize * (args.messages.message_count as usize * 2);
        let event_loop = EventLoop::new(&context, completions.max(1), &events.channel)?;
        let (pd, size) = (id.pd()?, args.messages.message_size as usize);
        let (outgoing, incoming) =
            (pd.allocate(size.max(1), Access::empty())?, id.reg_msgs(size.max(1))?);
        Ok(Self {
            ids: Vec::with_capacity(args.connections as usize),
            is_client,
            context,
            pd,
            event_loop,
            outgoing,
            incoming,
            sent: 0,
            received: 0,
            disconnected: 0,
            start: Instant::now(),
            before: common::resident_bytes(),
        })
    }

    fn begin(&mut self, args: &Args, id: CmId) -> Result<(), Failure> {
        let MessageArgs { message_count, message_size } = args.messages;
        let caps = common::caps(message_count.max(1), message_count.max(1));
        let qp = common::create_qp(&id, Some(&self.pd), &self.event_loop.cq, caps)?;
        let into = self.incoming.sge(0..message_size as usize);
        qp.post_recv(&vec![RecvWr::new(0, [into]); message_count as usize])?;
        self.ids.push(id);
        Ok(())
    }

    /// With several connections, prints the time.
    fn wait_for_all(&mut self, args: &Args) -> Result<(), Failure> {
        let mut left = args.connections;
        while left > 0 {
            let event = self.event_loop.events.wait(None)?;
            match event.kind() {
                EventKind::Established => left -= 1,
                EventKind::ConnectRequest if self.ids.len() < args.connections as usize => {
                    let id = event.id().clone();
                    self.begin(args, id.clone())?;
                    id.accept(&param())?;
                }
                EventKind::ConnectRequest => refuse(&event)?,
                EventKind::AddrChange => {}
                _ => return Err(common::unexpected(&event, None)),
            }
        }
        if args.connections > 1 {
            let (seconds, count) =
                (self.start.elapsed().as_secs_f64(), f64::from(args.connections));
            let bytes = common::resident_bytes().saturating_sub(self.before) as f64 / count;
            outln!(
                "{count} connections in {seconds:.3} seconds = {:.0} per second, {:.1} KiB of \
                 memory each",
                count / seconds,
                bytes / 1024.0
            );
        }
        Ok(())
    }

    fn play(mut self, args: &Args) -> Result<(), Failure> {
        let all = u64::from(args.connections) * u64::from(args.messages.message_count);
        if all > 0 && self.is_client {
            outln!("receiving data transfers");
            self.hear_until(|test| test.received == all)?;
            outln!("sending replies");
            self.send(args)?;
            self.hear_until(|test| test.sent == all)?;
            outln!("data transfers complete");
        } else if all > 0 {
            outln!("initiating data transfers");
            self.send(args)?;
            outln!("completing sends");
            self.hear_until(|test| test.sent == all)?;
            outln!("receiving data transfers");
            self.hear_until(|test| test.received == all)?;
            outln!("data transfers complete");
        }
        if args.migrate {
            outln!("migrating to new event channel");
            let channel = EventChannel::new()?;
            self.ids.iter().for_each(|id| id.migrate_id(&channel));
            self.event_loop.events = channel;
        }
        if !self.is_client {
            outln!("cmatose: disconnecting");
            for id in &self.ids {
                // perhaps ended
                let _ = id.disconnect();
            }
        }
        let count = self.ids.len();
        self.hear_until(|test| test.disconnected == count)?;
        outln!("disconnected");
        common::linger(&self.context);
        Ok(())
    }

    fn send(&self, args: &Args) -> Result<(), Failure> {
        let MessageArgs { message_count, message_size } = args.messages;
        let from = self.outgoing.sge(0..message_size as usize);
        let wrs = vec![SendWr::send(1, from); message_count as usize];
        for id in &self.ids {
            id.qp().ok_or("an id has no queue pair")?.post_send(&wrs)?;
        }
        Ok(())
    }

    fn hear_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        while !done(self) {
            match self.event_loop.next()? {
                Ready::Done(wc) => {
                    let ok = wc.result.map_err(|error| {
                        format!(
                            "after {} messages sent and {} received: {error}",
                            self.sent, self.received
                        )
                    })?;
                    if ok.opcode == WcOpcode::Recv { self.received += 1 } else { self.sent += 1 }
                }
                Ready::Event(event) => match event.kind() {
                    EventKind::Disconnected => {
                        self.disconnected += 1;
                        if self.is_client {
                            event.id().disconnect()?;
                        }
                    }
                    EventKind::ConnectRequest => refuse(&event)?,
                    EventKind::TimewaitExit | EventKind::AddrChange | EventKind::Established => {}
                    _ => return Err(common::unexpected(&event, None)),
                },
            }
        }
        Ok(())
    }
}

fn refuse(event: &CmEvent) -> Result<(), Failure> {
    errln!("cmatose: failing connection request");
    Ok(event.id().reject(&[])?)
}
