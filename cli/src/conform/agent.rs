//! `roce conform agent`: a device that a test drives over TCP.

use std::{
    io::{self, Read, Write},
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use roce::{Device, OpenOptions, Quirks};
use roce_agent::Agent;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::token::Token;
use crate::{failure::Failure, output::outln};

pub(super) const PORT: u16 = 4792;
const LINE: usize = 1 << 20;
/// A silent test loses its turn.
const SILENCE: Duration = Duration::from_secs(60);
/// Time for a client to show the token, and clients at the same time.
const GREETING: Duration = Duration::from_secs(2);
const GREETINGS: usize = 64;
const WAITING: usize = 8;

/// Open a device for the commands of `roce conform`.
///
/// The device is one of this tool. The agent prints a token, or takes it from ROCE_AGENT_TOKEN. A
/// client with the token uses the device and its registered memory, and nothing else of the host.
/// The agent serves one client at a time.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Device: a name from `roce devinfo`, or udp:ADDRESS
    #[arg(required_unless_present_any = ["python", "c"])]
    device: Option<String>,
    /// Print an agent in Python, for rxe and hardware
    ///
    /// It needs only python3-pyverbs of rdma-core; see its --help.
    #[arg(long, conflicts_with_all = ["device", "listen", "once"])]
    python: bool,
    /// Print an agent in C
    ///
    /// It needs only libibverbs: `cc agent.c -o agent -libverbs`
    #[arg(long, conflicts_with_all = ["device", "listen", "once", "python"])]
    c: bool,
    /// Address to listen on
    ///
    /// Default: port 4792 of the device's first address if that is loopback, else of 127.0.0.1 or
    /// ::1.
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = place)]
    listen: Option<SocketAddr>,
    /// End after the first test
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(device) = &args.device else {
        let program = if args.c { roce_agent::C } else { roce_agent::PYTHON };
        outln!("{}", program.trim_end());
        return Ok(());
    };
    let context = Device::named(device)?.open(OpenOptions::from_environment()?)?;
    let own = context.gids().into_iter().find(|gid| !gid.is_zero());
    let address = own.ok_or_else(|| format!("{device} has no address"))?.to_ip();
    let listen = args.listen.unwrap_or_else(|| SocketAddr::new(loopback(address), PORT));
    let listener = TcpListener::bind(listen).map_err(|error| {
        format!("cannot listen at {listen}: {error}; choose another address with --listen")
    })?;
    let given = Token::from_environment()?;
    let token = given.map_or_else(Token::random, Ok)?;
    let shown = given.map_or_else(|| format!(", token {token}"), |_| String::new());
    let mut agent = Agent::new(context, Quirks::default());
    outln!("device {address}, agent {}{shown}", listener.local_addr()?);
    let (tests, turns) = sync_channel(WAITING);
    thread::spawn(move || accept(&listener, token, &tests));
    for test in turns {
        // The agent outlives a test.
        let _ = serve(&mut agent, test);
        agent.execute(r#"[{"do": "clear"}]"#, &|| false)?;
        if args.once {
            break;
        }
    }
    Ok(())
}

fn place(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse().or_else(|_| text.parse().map(|ip| SocketAddr::new(ip, PORT)));
    with_port.map_err(|_| "expected ADDRESS or ADDRESS:PORT".to_owned())
}

fn loopback(device: IpAddr) -> IpAddr {
    match device {
        _ if device.is_loopback() => device,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// Clients that show no token delay nobody.
fn accept(listener: &TcpListener, token: Token, tests: &SyncSender<Lines>) {
    let greetings = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(Duration::from_millis(10)); // out of descriptors
            continue;
        };
        if Arc::strong_count(&greetings) > GREETINGS {
            continue;
        }
        let (greeting, tests) = (greetings.clone(), tests.clone());
        let greet = move || {
            let test = greet(Lines::new(stream), token);
            drop(greeting);
            // a full queue closes the connection
            let _ = test.map(|test| tests.try_send(test));
        };
        let _ = thread::Builder::new().spawn(greet);
    }
}

fn greet(mut client: Lines, token: Token) -> Option<Lines> {
    const REFUSED: &str =
        r#"[{"error": "EACCES", "text": "this is not the token that the agent has printed"}]"#;
    client.stream.set_nodelay(true).ok()?;
    client.stream.set_write_timeout(Some(GREETING)).ok()?;
    let said = client.next(64, GREETING).ok()??;
    let is_right = token.is(said.trim_end());
    writeln!(client.stream, "{}", if is_right { "[]" } else { REFUSED }).ok()?;
    is_right.then_some(client)
}

fn serve(agent: &mut Agent, mut test: Lines) -> Result<(), Failure> {
    test.stream.set_write_timeout(Some(SILENCE))?;
    while let Some(line) = test.next(LINE, SILENCE)? {
        let response = agent.execute(&line, &|| is_gone(&test.stream))?;
        test.stream.write_all(format!("{response}\n").as_bytes())?;
    }
    Ok(())
}

/// From an untrusted client, bounded in length and time.
struct Lines {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Lines {
    const fn new(stream: TcpStream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// The next line of up to `most` bytes within `time`.
    fn next(&mut self, most: usize, time: Duration) -> io::Result<Option<String>> {
        let end = Instant::now() + time;
        let mut seen = 0;
        loop {
            let found = self.pending[seen..].iter().position(|&byte| byte == b'\n');
            if let Some(at) = found.map(|at| seen + at) {
                let rest = self.pending.split_off(at + 1);
                let mut line = mem::replace(&mut self.pending, rest);
                line.pop();
                return Ok(String::from_utf8(line).ok().filter(|line| line.len() <= most));
            }
            seen = self.pending.len();
            let left = end.saturating_duration_since(Instant::now());
            if seen > most || left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut part = [0; 16 << 10];
            let length = self.stream.read(&mut part)?;
            if length == 0 {
                return Ok(None);
            }
            self.pending.extend_from_slice(&part[..length]);
        }
    }
}

fn is_gone(stream: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut [0_u8; 1][..], flags) {
        Ok((_, length)) => length == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_being_told_it_listens_on_loopback() {
        for (device, wanted) in [
            ("127.0.0.5", "127.0.0.5"),
            ("10.0.0.2", "127.0.0.1"),
            ("fe80::1", "::1"),
            ("::1", "::1"),
        ] {
            assert_eq!(loopback(device.parse().unwrap()), wanted.parse::<IpAddr>().unwrap());
        }
        for (text, wanted) in [
            ("10.0.0.2", "10.0.0.2:4792"),
            ("10.0.0.2:7", "10.0.0.2:7"),
            ("::", "[::]:4792"),
            ("[::]:7", "[::]:7"),
        ] {
            assert_eq!(place(text), Ok(wanted.parse().unwrap()));
        }
        assert!(place("host:7").is_err());
    }
}
