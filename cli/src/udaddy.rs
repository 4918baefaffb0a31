//! `roce udaddy`, like the stock `udaddy`.

use std::net::SocketAddr;

use roce::cm::{CmId, ConnParam, EventKind};

use crate::{
    common::{self, DatagramSpace, EndArgs, Events, LinkArgs, MessageArgs},
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
    let events = args.link.open()?;
    match args.end.server(PORT)? {
        Some(server) => run_client(args, server, &events),
        None => run_server(args, &events),
    }?;
    outln!("test complete");
    outln!("return status 0");
    Ok(())
}

impl Args {
    fn datagrams(&self, id: &CmId, events: &Events) -> Result<Datagrams, Failure> {
        Datagrams::new("udaddy", id, self.connections, &self.messages, events)
    }
}

fn run_client(args: &Args, server: SocketAddr, events: &Events) -> Result<(), Failure> {
    outln!("udaddy: starting client");
    let own = args.end.own()?;
    outln!("udaddy: connecting");
    let mut all: Option<Datagrams> = None;
    for _ in 0..args.connections {
        let id = args.end.id(events, args.port_space.into())?;
        events.resolve(&id, own, server)?;
        let datagrams = match &mut all {
            Some(datagrams) => datagrams,
            None => all.insert(args.datagrams(&id, events)?),
        };
        let node = datagrams.begin(id.clone(), true)?;
        id.connect(&ConnParam::default())?;
        let event = events.expect(EventKind::Established, server)?;
        let ud = event.ud().ok_or("the server's response has no queue pair number")?;
        node.to = Some(ud.destination());
    }
    let mut datagrams = all.ok_or("-c 0 makes no queue pair; use at least 1")?;
    if args.messages.message_count > 0 {
        outln!("initiating data transfers");
        datagrams.send()?;
        outln!("receiving data transfers");
        datagrams.wait(|node| node.received)?;
        outln!("data transfers complete");
    }
    Ok(())
}

fn run_server(args: &Args, events: &Events) -> Result<(), Failure> {
    outln!("udaddy: starting server");
    let listener = args.end.id(events, args.port_space.into())?;
    args.end.listen(&listener, PORT)?;
    let mut all: Option<Datagrams> = None;
    for _ in 0..args.connections {
        let event = events.next_request()?;
        let id = event.id();
        let datagrams = match &mut all {
            Some(datagrams) => datagrams,
            None => all.insert(args.datagrams(id, events)?),
        };
        datagrams.begin(id.clone(), true)?;
        id.accept(&ConnParam::default())?;
    }
    let mut datagrams = all.ok_or("-c 0 makes no queue pair; use at least 1")?;
    if args.messages.message_count > 0 {
        outln!("receiving data transfers");
        datagrams.wait(|node| node.received)?;
        outln!("sending replies");
        datagrams.send()?;
        datagrams.wait(|node| node.sent)?;
        outln!("data transfers complete");
    }
    common::linger(&datagrams.context);
    Ok(())
}
