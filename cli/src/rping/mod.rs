//! `roce rping`: the stock `rping`'s exchange.
//!
//! The client advertises its source buffer; the server READs it and says "go ahead". Then the
//! server WRITEs the client's sink buffer likewise.

mod args;
mod message;
mod ping;

use roce::cm::{EventChannel, PortSpace};

use crate::{
    common::{self, Events},
    failure::Failure,
    output::errln,
};
pub(crate) use args::Args;
use ping::Ping;

/// "rdma-ping-", a number, ": ", and a zero byte must fit.
const SIZES: std::ops::RangeInclusive<usize> = 23..=65535;

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if !SIZES.contains(&args.size) {
        let (size, least, most) = (args.size, SIZES.start(), SIZES.end());
        return Err(format!("invalid size {size}; choose one of {least} to {most} with -S").into());
    }
    let events = args.link.open()?;
    match &args.address {
        Some(server) if args.client => {
            let server = common::address(server, args.port)?;
            Ping::connect(&args, &events, server)?.run_client()
        }
        _ => serve(args, &events),
    }
}

fn serve(args: Args, events: &Events) -> Result<(), Failure> {
    let listener = events.channel.create_id(PortSpace::Tcp);
    events.use_device(&listener)?;
    listener
        .bind_addr(common::address(args.address.as_deref().unwrap_or("0.0.0.0"), args.port)?)?;
    listener.listen(0)?;
    args.debug(format_args!("listening on port {}", listener.src_port()));
    let args = std::sync::Arc::new(args);
    loop {
        let id = events.next_request()?.id().clone();
        if !args.persistent {
            return Ping::accept(&args, &events.channel, id)?.run_server();
        }
        let own = EventChannel::new()?;
        id.migrate_id(&own);
        let args = args.clone();
        std::thread::spawn(move || {
            if let Err(error) = Ping::accept(&args, &own, id).and_then(Ping::run_server) {
                errln!("roce: {error}");
            }
        });
    }
}
