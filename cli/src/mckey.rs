//! `roce mckey`, like the stock `mckey`.

use std::{net::IpAddr, time::Duration};

use roce::{
    Gid,
    cm::{EventKind, JoinFlags},
};

use crate::{
    common::{self, DatagramSpace, LinkArgs, MessageArgs},
    datagrams::Datagrams,
    failure::{Failure, fail},
    output::outln,
};

/// Send to a multicast group, or receive from it
///
/// On one host, in two terminals:
///
///     roce mckey -m 239.1.2.3 -b 127.0.0.1
///     roce mckey -m 239.1.2.3 -b 127.0.0.2 -s
///
/// The other side can be rdma-core's mckey, on rxe or an RDMA network adapter; its options are the
/// same. Both sides need the same number and size of messages. Start the receiver first: messages
/// sent before it joins are lost.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(group(clap::ArgGroup::new("group").required(true).args(["multicast", "unmapped"])))]
pub(crate) struct Args {
    /// The group, an IP multicast address
    #[arg(short, value_name = "GROUP")]
    multicast: Option<IpAddr>,
    /// The group as a GID
    ///
    /// An IPv6 multicast address, or ::ffff: and an IPv4 one.
    #[arg(short = 'M', value_name = "GROUP", requires = "bind")]
    unmapped: Option<std::net::Ipv6Addr>,
    /// Send
    #[arg(short)]
    sender: bool,
    /// This side's address; default: that of the route
    #[arg(short, value_name = "ADDRESS")]
    bind: Option<String>,
    /// Queue pairs that join
    #[arg(short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    #[command(flatten)]
    messages: MessageArgs,
    /// 0x111 (udp) or 0x2 (ipoib)
    #[arg(short, long = "port-space", value_name = "SPACE", default_value = "0x111")]
    port_space: DatagramSpace,
    /// Join to send only
    #[arg(short = 'o', requires = "sender")]
    send_only: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// The network learns of the group before the first message.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let unmapped = args.unmapped.map(|gid| gid.to_canonical());
    let group = args.multicast.or(unmapped).ok_or("no group is given; name one with -m")?;
    if !group.is_multicast() {
        fail!("{group} is not a multicast address; choose one like 239.1.2.3 or ff05::1:2");
    }
    let events = args.link.open()?;
    outln!("mckey: starting {}", if args.sender { "client" } else { "server" });
    outln!("mckey: joining");
    let own = args.bind.as_deref().map(|own| common::address(own, 0)).transpose()?;
    let flags = if args.send_only { JoinFlags::SendOnlyFullMember } else { JoinFlags::FullMember };
    let peer = (group, 0).into();
    let mut all: Option<Datagrams> = None;
    for _ in 0..args.connections {
        let id = events.channel.create_id(args.port_space.into());
        match own {
            Some(own) => id.bind_addr(own)?,
            None => {
                events.use_device(&id)?;
                id.resolve_addr(None, peer, Duration::from_secs(2))?;
                events.expect(EventKind::AddrResolved, peer)?;
            }
        }
        let datagrams = match &mut all {
            Some(datagrams) => datagrams,
            None => {
                let count = args.connections;
                all.insert(Datagrams::new("mckey", &id, count, &args.messages, &events)?)
            }
        };
        let node = datagrams.begin(id.clone(), !args.sender)?;
        id.join_multicast_ex(group, flags)?;
        let event = events.expect(EventKind::MulticastJoin, peer)?;
        node.to = Some(event.ud().ok_or("the group has no address")?.destination());
        outln!("mckey: joined dgid: {} mlid 0x0 sl 0", Gid::from(group));
    }
    let mut datagrams = all.ok_or("-c 0 makes no queue pair; use at least 1")?;
    if args.messages.message_count > 0 && args.sender {
        std::thread::sleep(PAUSE);
        outln!("initiating data transfers");
        datagrams.send()?;
        datagrams.wait(|node| node.sent)?;
        outln!("data transfers complete");
    } else if args.messages.message_count > 0 {
        outln!("receiving data transfers");
        datagrams.wait(|node| node.received)?;
        outln!("data transfers complete");
    }
    for node in &datagrams.nodes {
        node.id.leave_multicast(group)?;
    }
    outln!("test complete");
    outln!("return status 0");
    Ok(())
}
