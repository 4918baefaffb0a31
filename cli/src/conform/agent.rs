//! `roce conform agent`: a device that a test drives over TCP.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use roce::{Device, OpenOptions, Quirks};
use roce_agent::Agent;

use crate::{failure::Failure, output::outln};

/// Port where agents listen.
pub(super) const PORT: u16 = 4792;
/// The longest line of commands.
const LINE: u64 = 1 << 20;
/// Time for which a test may be silent; then it is another's turn.
const SILENCE: Duration = Duration::from_secs(60);

/// Open a device, and do with it what `roce conform` says.
///
/// The device is one of this tool. Who can connect to the agent's port uses the device and the
/// memory that the agent has given it, and nothing else of the host; it serves one after the other.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Device: a name from `roce devinfo`, or udp:ADDRESS
    #[arg(required_unless_present_any = ["python", "c"])]
    device: Option<String>,
    /// Print an agent for the devices of others, rxe or hardware: a program in Python that needs
    /// python3-pyverbs of rdma-core and nothing else, and says with --help how it is started
    #[arg(long, conflicts_with_all = ["device", "listen", "once"])]
    python: bool,
    /// Print one in C, which needs libibverbs and nothing else: `cc agent.c -o agent -libverbs`
    #[arg(long, conflicts_with_all = ["device", "listen", "once", "python"])]
    c: bool,
    /// Where it listens. By default port 4792 of the device's first address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// End when the first test is over
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(device) = &args.device else {
        let program = if args.c { roce_agent::C } else { roce_agent::PYTHON };
        outln!("{}", program.trim_end());
        return Ok(());
    };
    let context = Device::named(device)?.open(OpenOptions::default())?;
    let own = context.gids().into_iter().find(|gid| !gid.is_zero());
    let address = own.ok_or_else(|| format!("{device} has no address"))?.to_ip();
    let listen = args.listen.unwrap_or_else(|| SocketAddr::new(address, PORT));
    let listener = TcpListener::bind(listen).map_err(|error| {
        format!("cannot listen at {listen}: {error}; choose another address with --listen")
    })?;
    let mut agent = Agent::new(context, Quirks::default());
    outln!("device {address}, agent {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        // a test that has gone is no reason to end
        let _ = serve(&mut agent, &stream);
        agent.answer(r#"[{"do": "clear"}]"#)?;
        if args.once {
            return Ok(());
        }
    }
}

fn serve(agent: &mut Agent, stream: &TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let (mut input, mut output) = (BufReader::new(stream), stream);
    loop {
        let mut line = String::new();
        input.by_ref().take(LINE).read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Ok(()); // the end, or too long
        }
        let answer = agent.answer(&line)?;
        output.write_all(format!("{answer}\n").as_bytes())?;
    }
}
