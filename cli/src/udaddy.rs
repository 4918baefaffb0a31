//! `roce udaddy`, like the stock `udaddy`.

use std::net::SocketAddr;

use roce::{
    Context,
    cm::{CmId, ConnParam, EventChannel, EventKind},
};

use crate::{
    common::{self, DatagramSpace, EndArgs, LinkArgs, MessageArgs},
    datagrams::Datagrams,
    failure::Failure,
    output::outln,
};

/// Exchange datagrams with a server
///
/// On one host, in two terminals:
///
///     roce udaddy
///     roce udaddy -s 127.0.0.1
///
/// The other side can be rdma-core's udaddy, on rxe or an RDMA network adapter; its options are the
/// same. Both sides need the same number of queue pairs, and number and size of messages.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    end: EndArgs,
    /// Queue pairs of each side
    #[arg(short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    #[command(flatten)]
    messages: MessageArgs,
    /// 0x111 (udp) or 0x2 (ipoib)
    #[arg(short, long = "port-space", value_name = "SPACE", default_value = "0x111")]
    #[arg(visible_short_alias = 'P')]
    port_space: DatagramSpace,
    #[command(flatten)]
    link: LinkArgs,
}

/// The stock tool's port, which has no option.
const PORT: u16 = 7174;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let context = args.link.open()?;
    let channel = EventChannel::new()?;
    match args.end.server(PORT)? {
        Some(server) => run_client(args, server, &channel, context.as_ref()),
        None => run_server(args, &channel, context.as_ref()),
    }?;
    outln!("test complete");
    outln!("return status 0");
    Ok(())
}

impl Args {
    fn datagrams(&self, id: &CmId, channel: &EventChannel) -> Result<Datagrams, Failure> {
        Datagrams::new("udaddy", id, self.connections, &self.messages, channel)
    }
}

fn run_client(
    args: &Args,
    server: SocketAddr,
    channel: &EventChannel,
    context: Option<&Context>,
) -> Result<(), Failure> {
    outln!("udaddy: starting client");
    let own = args.end.own()?;
    outln!("udaddy: connecting");
    let mut all: Option<Datagrams> = None;
    for _ in 0..args.connections {
        let id = args.end.id(channel, args.port_space.into(), context)?;
        common::resolve(&id, channel, own, server)?;
        let datagrams = match &mut all {
            Some(datagrams) => datagrams,
            None => all.insert(args.datagrams(&id, channel)?),
        };
        let node = datagrams.begin(id.clone(), true)?;
        id.connect(&ConnParam::default())?;
        let event = common::expect(channel, EventKind::Established, server)?;
        let ud = event.ud().ok_or("the server's response has no queue pair number")?;
        node.to = Some(ud.destination());
    }
    let mut datagrams = all.ok_or("-c 0 makes no queue pair; use at least 1")?;
    if args.messages.message_count > 0 {
        outln!("initiating data transfers");
        datagrams.send()?;
        outln!("receiving data transfers");
        datagrams.wait_received()?;
        outln!("data transfers complete");
    }
    Ok(())
}

fn run_server(
    args: &Args,
    channel: &EventChannel,
    context: Option<&Context>,
) -> Result<(), Failure> {
    outln!("udaddy: starting server");
    let listener = args.end.id(channel, args.port_space.into(), context)?;
    args.end.listen(&listener, PORT)?;
    let mut all: Option<Datagrams> = None;
    for _ in 0..args.connections {
        let event = common::next_request(channel)?;
        let id = event.id();
        let datagrams = match &mut all {
            Some(datagrams) => datagrams,
            None => all.insert(args.datagrams(id, channel)?),
        };
        datagrams.begin(id.clone(), true)?;
        id.accept(&ConnParam::default())?;
    }
    let mut datagrams = all.ok_or("-c 0 makes no queue pair; use at least 1")?;
    if args.messages.message_count > 0 {
        outln!("receiving data transfers");
        datagrams.wait_received()?;
        outln!("sending replies");
        datagrams.send()?;
        datagrams.wait_sent()?;
        outln!("data transfers complete");
    }
    common::linger(&datagrams.context);
    Ok(())
}
