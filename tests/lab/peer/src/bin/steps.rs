//! CM in steps that no tool takes, against librdmacm in a guest (`cm_steps.py`).

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use clap::Parser;
use roce::{
    CompletionQueue, Context, Device, OpenOptions, RecvWr, SendWr,
    cm::{CmEvent, CmId, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PORT: u16 = 7174;
const RESOLVE: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);
/// 4.096 µs · 2^14 and few retries show a vanished peer soon.
const ACK_TIMEOUT: u8 = 14;
const RETRY_COUNT: u8 = 3;

#[derive(Parser)]
struct Arguments {
    /// The device, such as udp:10.77.0.1
    device: String,
    /// Seed of all random numbers: two programs with the same seed and the same steps have the same
    /// GUID, ids and numbers
    #[arg(long)]
    seed: Option<u8>,
    /// Steps, one after the other
    #[arg(required = true)]
    steps: Vec<Step>,
}

/// A step, on the last created id; prints arrivals.
#[derive(Clone)]
enum Step {
    /// `listen`.
    Listen,
    /// `request`: waits for a request; makes a queue pair with a receive request.
    Request,
    /// `to:ADDRESS`: resolves address and route; makes a queue pair with a receive request.
    To(IpAddr),
    /// `connect`, `connect:WORDS` with private data.
    Connect(Vec<u8>),
    /// `accept`, `accept:WORDS`.
    Accept(Vec<u8>),
    /// `reject`, `reject:WORDS`.
    Reject(Vec<u8>),
    Disconnect,
    /// `event`: waits for the next.
    Event,
    /// `send`: an empty message; waits for its completion.
    Send,
    /// `received`: waits for the receive completion.
    Received,
    DestroyQp,
    /// `pause`: 1 s.
    Pause,
    /// `draw`: discards a random number, which shifts later ones. Only here.
    Draw,
    /// `die`: exits without a DREQ. Only here: the kernel sends a DREQ for its programs.
    Die,
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, words) = text.split_once(':').unwrap_or((text, ""));
        let data = || words.as_bytes().to_vec();
        Ok(match name {
            "listen" => Self::Listen,
            "request" => Self::Request,
            "to" => Self::To(words.parse().map_err(|_| format!("{words} is no address"))?),
            "connect" => Self::Connect(data()),
            "accept" => Self::Accept(data()),
            "reject" => Self::Reject(data()),
            "disconnect" => Self::Disconnect,
            "event" => Self::Event,
            "send" => Self::Send,
            "received" => Self::Received,
            "destroy-qp" => Self::DestroyQp,
            "pause" => Self::Pause,
            "draw" => Self::Draw,
            "die" => Self::Die,
            _ => return Err(format!("there is no step {name}")),
        })
    }
}

fn main() -> Result<()> {
    let Arguments { device, seed, steps } = Arguments::parse();
    let seed = seed.map(|seed| [seed; 32]);
    let context = Device::named(&device)?.open(OpenOptions { seed, ..OpenOptions::default() })?;
    let channel = EventChannel::new()?;
    let mut side = Side { id: channel.create_id(PortSpace::Tcp), listener: None, context, channel };
    for step in steps {
        side.take(step)?;
    }
    println!("done");
    Ok(())
}

struct Side {
    context: Context,
    channel: EventChannel,
    listener: Option<CmId>,
    id: CmId,
}

impl Side {
    fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Listen => {
                let listener = self.create_id()?;
                listener.bind_addr((Ipv4Addr::UNSPECIFIED, PORT).into())?;
                listener.listen(0)?;
                self.listener = Some(listener);
            }
            Step::Request => {
                let request = loop {
                    let event = self.next_event()?;
                    if event.kind() == EventKind::ConnectRequest {
                        break event;
                    }
                };
                self.id = request.id().clone();
                self.create_qp()?;
            }
            Step::To(address) => {
                self.id = self.create_id()?;
                self.id.set_ack_timeout(ACK_TIMEOUT)?;
                self.id.resolve_addr(None, (address, PORT).into(), RESOLVE)?;
                self.next_event()?;
                self.id.resolve_route(RESOLVE)?;
                self.next_event()?;
                self.create_qp()?;
            }
            Step::Connect(words) => self.id.connect(&param(words))?,
            Step::Accept(words) => self.id.accept(&param(words))?,
            Step::Reject(words) => self.id.reject(&words)?,
            Step::Disconnect => self.id.disconnect()?,
            Step::Event => drop(self.next_event()?),
            Step::Send => {
                self.id.qp().ok_or("no queue pair")?.post_send(&[SendWr::send(0, [])])?;
                complete("sent", self.id.send_cq())?;
            }
            Step::Received => complete("received", self.id.recv_cq())?,
            Step::DestroyQp => self.id.destroy_qp(),
            Step::Pause => std::thread::sleep(PAUSE),
            Step::Draw => drop(self.context.random_psn()),
            // Nothing is dropped.
            Step::Die => std::process::exit(0),
        }
        Ok(())
    }

    fn create_id(&self) -> Result<CmId> {
        let id = self.channel.create_id(PortSpace::Tcp);
        id.set_context(&self.context)?;
        Ok(id)
    }

    fn create_qp(&self) -> Result<()> {
        self.id.create_qp(None, &CmQpAttr::default())?;
        let qp = self.id.qp().ok_or("no queue pair")?;
        println!("queue pair {}", qp.qpn().get());
        Ok(qp.post_recv(&[RecvWr::new(0, [])])?)
    }

    fn next_event(&self) -> Result<CmEvent> {
        let event = self.channel.wait(Some(LIMIT))?;
        let data = event.private_data();
        let words = String::from_utf8_lossy(data).trim_end_matches('\0').to_owned();
        let words = if words.is_empty() { words } else { format!(", {words:?}") };
        println!("{}, error {}{words}", event.kind(), event.status().code());
        Ok(event)
    }
}

fn param(private_data: Vec<u8>) -> ConnParam {
    ConnParam { private_data, retry_count: RETRY_COUNT, ..ConnParam::default() }
}

fn complete(what: &str, cq: Option<CompletionQueue>) -> Result<()> {
    let cq = cq.ok_or("no queue pair")?;
    let end = Instant::now() + LIMIT;
    let wc = loop {
        match cq.poll_one() {
            Some(wc) => break wc,
            None if Instant::now() > end => return Err(format!("{what}: no completion").into()),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    match wc.result {
        Ok(_) => println!("{what}: success"),
        Err(error) => println!("{what}: {:?}", error.status),
    }
    Ok(())
}
