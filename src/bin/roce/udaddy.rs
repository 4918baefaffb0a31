//! `roce udaddy`: datagrams to a service that a server offers, and back, as the stock `udaddy` does it.

use roce::{
    Context,
    cm::{CmId, ConnParam, EventChannel, EventKind, PortSpace},
};

use crate::{
    Failure,
    datagrams::Datagrams,
    side::{self, DatagramSpace, Format, LinkArgs},
};

/// Ask a server for its datagram queue pairs, send it messages, and get as many back.
///
/// On one host, in two terminals:
///
///     roce udaddy
///     roce udaddy -s 127.0.0.1
///
/// The other side may as well be the stock udaddy, on the kernel's rxe or on an RDMA network
/// adapter; options mean what they mean there. Queue pairs, messages and their size have to be
/// the same on both sides.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Where the server is; without it, this is the server
    #[arg(short, value_name = "SERVER")]
    server: Option<String>,
    /// The own address. Without it a server listens on every IPv4 address; `-b ::0` for every IPv6 one
    #[arg(short, value_name = "ADDRESS")]
    bind: Option<String>,
    /// What the addresses are
    #[arg(short, value_enum, default_value_t = Format::Name)]
    format: Format,
    /// Queue pairs of each side
    #[arg(short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Messages each way for each queue pair
    #[arg(short = 'C', value_name = "MESSAGES", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=16_384))]
    message_count: u32,
    /// Bytes per message
    #[arg(short = 'S', value_name = "SIZE", default_value_t = 100)]
    message_size: u32,
    /// Type of service of the packets
    #[arg(short = 't', value_name = "TOS")]
    tos: Option<u8>,
    /// Port space: 0x111 (udp) or 0x2 (ipoib)
    #[arg(short, long = "port-space", visible_short_alias = 'P', value_name = "SPACE", default_value = "0x111")]
    port_space: DatagramSpace,
    #[command(flatten)]
    link: LinkArgs,
}

/// The stock tool's port, which it has no option for.
const PORT: u16 = 7174;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let context = args.link.open()?;
    let channel = EventChannel::new()?;
    if args.server.is_some() { ask(args, &channel, context.as_ref()) } else { answer(args, &channel, context.as_ref()) }?;
    println!("test complete");
    println!("return status 0");
    Ok(())
}

impl Args {
    fn id(&self, channel: &EventChannel, context: Option<&Context>) -> Result<CmId, Failure> {
        let id = channel.create_id(self.port_space.into());
        side::place(&id, context)?;
        if let Some(tos) = self.tos {
            id.set_tos(tos);
        }
        Ok(id)
    }

    fn datagrams(&self, id: &CmId, channel: &EventChannel) -> Result<Datagrams, Failure> {
        Datagrams::new("udaddy", id, self.connections, self.message_count, self.message_size, channel)
    }
}

/// The client.
fn ask(args: &Args, channel: &EventChannel, context: Option<&Context>) -> Result<(), Failure> {
    println!("udaddy: starting client");
    let server = args.format.address(args.server.as_deref().unwrap_or_default(), PORT)?;
    let own = args.bind.as_deref().map(|own| args.format.address(own, 0)).transpose()?;
    println!("udaddy: connecting");
    let mut all: Option<Datagrams> = None;
    for _ in 0..args.connections {
        let id = args.id(channel, context)?;
        side::resolve(&id, channel, own, server)?;
        let mut datagrams = match all.take() {
            Some(datagrams) => datagrams,
            None => args.datagrams(&id, channel)?,
        };
        datagrams.begin(id.clone(), true)?;
        id.connect(&ConnParam::default())?;
        let event = side::expect(channel, EventKind::Established, server)?;
        let to = event.ud().ok_or("the server has told no queue pair")?.destination();
        if let Some(node) = datagrams.node(&id) {
            node.to = Some(to);
        }
        all = Some(datagrams);
    }
    let mut datagrams = all.ok_or("no queue pair is wanted")?;
    if args.message_count > 0 {
        println!("initiating data transfers");
        datagrams.send()?;
        println!("receiving data transfers");
        datagrams.wait_received()?;
        println!("data transfers complete");
    }
    Ok(())
}

/// The server.
fn answer(args: &Args, channel: &EventChannel, context: Option<&Context>) -> Result<(), Failure> {
    println!("udaddy: starting server");
    let listener = args.id(channel, context)?;
    listener.bind_addr(args.format.address(args.bind.as_deref().unwrap_or("0.0.0.0"), PORT)?)?;
    listener.listen(0)?;
    let mut all: Option<Datagrams> = None;
    let mut left = args.connections;
    while left > 0 {
        let event = channel.wait(None)?;
        match event.kind() {
            EventKind::ConnectRequest => {
                let id = event.id();
                let mut datagrams = match all.take() {
                    Some(datagrams) => datagrams,
                    None => args.datagrams(id, channel)?,
                };
                datagrams.begin(id.clone(), true)?;
                id.accept(&ConnParam::default())?;
                all = Some(datagrams);
                left -= 1;
            }
            EventKind::AddrChange => {}
            _ => return Err(side::unexpected(&event, None)),
        }
    }
    let mut datagrams = all.ok_or("no queue pair is wanted")?;
    if args.message_count > 0 {
        println!("receiving data transfers");
        datagrams.wait_received()?;
        println!("sending replies");
        datagrams.send()?;
        datagrams.wait_sent()?;
        println!("data transfers complete");
    }
    datagrams.finish();
    Ok(())
}

impl From<DatagramSpace> for PortSpace {
    fn from(space: DatagramSpace) -> Self {
        match space {
            DatagramSpace::Udp => Self::Udp,
            DatagramSpace::Ipoib => Self::Ipoib,
        }
    }
}
