//! The device under test over UDP, and its agent over TCP.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind, Write},
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    os::fd::AsFd,
    time::Duration,
};

use roce::{
    Access, Mtu, QpType, Qpn,
    transport::{time::Instant, wire::NetHeader},
};
use roce_conformance::{
    INBOX, SOURCE, SOURCE_SEED,
    case::{
        Bind, Connection, MemoryLocation, PEER_ADDRESS, PEER_KEY, PauseFrames, Queue, Request,
        RequestKind, WRONG_KEY,
    },
    subject::{
        Arrival, Completion, Listener, Program, RemoteRegion, Result, Route, Subject, SubjectError,
    },
};
use serde_json::{Value, json};

use super::{
    agent::PORT,
    network::Network,
    token::{Token, VARIABLE},
};
use crate::failure::{Failure, fail};

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Remote {
    network: Network,
    mtu: Mtu,
    agent: BufReader<TcpStream>,
    /// Reason of a lost agent.
    gone: Option<String>,
    regions: BTreeMap<String, Region>,
    windows: BTreeMap<String, u32>,
    pairs: usize,
    chosen: usize,
    kind: Option<(QpType, u32)>,
    is_shared: bool,
}

#[derive(Clone, Copy)]
struct Region {
    lkey: u64,
    address: u64,
}

impl Remote {
    pub(super) fn reach(
        device: IpAddr,
        agent: Option<&str>,
        token: Option<Token>,
        from: Option<&str>,
        pause: Duration,
    ) -> Result<Self, Failure> {
        let place = match agent {
            Some(name) => {
                name.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
                    format!("{name} is not an agent's address, such as 10.0.0.2:{PORT}")
                })?
            }
            None => SocketAddr::new(device, PORT),
        };
        let listen =
            if device.is_loopback() { String::new() } else { format!(" --listen {device}") };
        let stream = TcpStream::connect_timeout(&place, PATIENCE).map_err(|error| {
            format!(
                "no agent responds at {place} ({error}); start `roce conform agent \
                 udp:{device}{listen}` there, for another adapter the program \
                 that `roce conform agent --python` prints, \
                 or say where it is with --agent; or do without, by --cm PORT of a program that listens there"
            )
        })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut agent = BufReader::new(stream);
        show(&mut agent, token).map_err(|why| format!("the agent at {place}: {why}"))?;
        let mut remote = Self {
            network: Network::open(device, from, None, pause)?,
            mtu: Mtu::B256,
            agent,
            gone: None,
            regions: BTreeMap::new(),
            windows: BTreeMap::new(),
            pairs: 0,
            chosen: 0,
            kind: None,
            is_shared: false,
        };
        let hello = remote.ask(json!({"do": "hello"}))?;
        let mtu = hello["active_mtu"].as_u64().and_then(|mtu| Mtu::from_bytes(mtu as u32));
        remote.mtu = mtu.ok_or_else(|| format!("{place} is not an agent: it sent {hello}"))?;
        let known = |own: &Value| own.as_str().is_some_and(|own| own.parse() == Ok(device));
        if !hello["addresses"].as_array().is_some_and(|all| all.iter().any(known)) {
            let addresses = &hello["addresses"];
            fail!("the agent at {place} has no device with the address {device}, but {addresses}");
        }
        remote.clear()?;
        Ok(remote)
    }

    fn ask_all(&mut self, commands: &[Value]) -> Result<Vec<Value>> {
        // Each timeout would take ten seconds.
        let lost =
            |why: &String| SubjectError::Broken(format!("the agent closed the connection: {why}"));
        if let Some(why) = &self.gone {
            return Err(lost(why));
        }
        let responses = self.exchange(commands).map_err(|why| lost(self.gone.insert(why)))?;
        match responses.iter().find(|response| response.get("error").is_some()) {
            None => Ok(responses),
            Some(error) => {
                let (name, text) = (text_of(&error["error"]), text_of(&error["text"]));
                Err(match name.as_str() {
                    "EPROTO" => SubjectError::Broken(text),
                    _ => SubjectError::Unsupported(format!("{name}: {text}")),
                })
            }
        }
    }

    fn exchange(&mut self, commands: &[Value]) -> Result<Vec<Value>, String> {
        let line = format!("{}\n", Value::from(commands));
        self.agent.get_mut().write_all(line.as_bytes()).map_err(|error| error.to_string())?;
        if self.agent.buffer().is_empty() {
            let end = self.network.now().plus(PATIENCE);
            let agent = self.agent.get_ref().as_fd();
            self.network.attend(agent, end).map_err(|error| error.to_string())?;
        }
        let responses = read_responses(&mut self.agent)?;
        if responses.len() != commands.len() {
            return Err("its response has an unknown form".to_owned());
        }
        Ok(responses)
    }

    fn ask(&mut self, command: Value) -> Result<Value> {
        self.ask_all(&[command]).map(|mut responses| responses.remove(0))
    }

    fn post(&mut self, wr: &Value) -> Result<Value> {
        self.ask(json!({"do": "send", "qp": self.qp(), "wrs": [wr]}))
    }

    fn find(&self, region: &str) -> Result<Region> {
        let found = self.regions.get(region).copied();
        found.ok_or_else(|| SubjectError::Broken(format!("unknown region {region}")))
    }

    fn qp(&self) -> String {
        format!("qp{}", self.chosen)
    }

    fn sge(&self, name: &str, offset: u32, length: u32) -> Result<Value> {
        let Region { lkey, address } = self.find(name)?;
        Ok(json!({"lkey": lkey, "address": address + u64::from(offset), "length": length}))
    }
}

fn show(agent: &mut BufReader<TcpStream>, given: Option<Token>) -> Result<(), Failure> {
    let token = given.map_or_else(Token::from_environment, |token| Ok(Some(token)))?;
    let wanted = || format!("pass the token that it printed by --token or {VARIABLE}");
    let token = token.ok_or_else(wanted)?;
    agent.get_mut().write_all(format!("{token}\n").as_bytes())?;
    match &read_responses(agent)?[..] {
        [] => Ok(()),
        [refused, ..] => Err(text_of(&refused["text"]).into()),
    }
}

fn read_responses(agent: &mut BufReader<TcpStream>) -> Result<Vec<Value>, String> {
    let mut line = String::new();
    let length = agent.read_line(&mut line).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => format!("no response for {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    })?;
    if length == 0 {
        return Err("it closed the connection".to_owned());
    }
    serde_json::from_str(&line).map_err(|error| error.to_string())
}

/// A number of an answer, or what is missing.
fn number(value: &Value, missing: &str) -> Result<u64> {
    value.as_u64().ok_or_else(|| SubjectError::Broken(missing.into()))
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn of_pattern(command: &str, region: &str, offset: u32, bytes: u32, seed: u32) -> Value {
    json!({"do": command, "mr": region, "offset": offset, "length": bytes, "seed": seed})
}

fn names(rights: Access) -> Vec<&'static str> {
    rights.iter_names().map(|(name, _)| name).collect()
}

impl Subject for Remote {
    fn program(&mut self) -> Result<&mut dyn Program> {
        Ok(self)
    }

    fn listener(&self) -> Option<&Listener> {
        None
    }

    fn clear(&mut self) -> Result<()> {
        self.regions.clear();
        self.windows.clear();
        (self.pairs, self.chosen, self.kind) = (0, 0, None);
        self.ask_all(&[json!({"do": "clear"}), json!({"do": "pd", "name": "pd"})])?;
        self.network.clear()
    }

    fn route(&self) -> Route {
        self.network.route()
    }

    fn now(&self) -> Instant {
        self.network.now()
    }

    fn tolerance(&self) -> Duration {
        self.network.tolerance()
    }

    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<()> {
        self.network.send(net, bytes)
    }

    fn pause(&mut self, pause: PauseFrames) -> Result<()> {
        self.network.pause(pause)
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>> {
        self.network.receive(until)
    }
}

impl Program for Remote {
    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<RemoteRegion> {
        let made = self.ask(json!({
            "do": "mr", "name": name, "pd": "pd", "length": bytes, "access": names(rights),
        }))?;
        let number = |what: &str| number(&made[what], &format!("the region has no {what}"));
        let (lkey, address) = (number("lkey")?, number("address")?);
        self.regions.insert(name.to_owned(), Region { lkey, address });
        Ok(RemoteRegion { address, rkey: number("rkey")? as u32 })
    }

    fn connect(&mut self, connection: &Connection, peer: Qpn) -> Result<Qpn> {
        let &Connection { qp_type, qkey, rq_psn, sq_psn, .. } = connection;
        let service = match qp_type {
            QpType::Uc => "uc",
            QpType::Ud => "ud",
            _ => "rc",
        };
        let cq = |name: &str| json!({"do": "cq", "name": name, "size": 256});
        let [name, send, receive] =
            ["qp", "send", "receive"].map(|kind| format!("{kind}{}", self.pairs));
        let mut qp = json!({
            "do": "qp", "name": name, "pd": "pd", "type": service,
            "send_cq": send, "recv_cq": receive, "sq_sig_all": true,
            "caps": {
                "max_send_wr": 64, "max_recv_wr": 64, "max_recv_sge": 4,
                "max_send_sge": connection.max_send_sge,
                "max_inline_data": connection.max_inline_data,
            },
        });
        self.is_shared = connection.shared;
        if connection.shared {
            qp["srq"] = "srq".into();
        }
        if connection.shared && self.pairs == 0 {
            self.ask(json!({"do": "srq", "name": "srq", "pd": "pd", "max_wr": 64, "max_sge": 4}))?;
        }
        let made = self.ask_all(&[cq(&send), cq(&receive), qp])?;
        let peer = json!({"address": self.network.route().own, "qpn": peer.get(), "path_mtu": connection.mtu});
        let (rtr, rts) = match qp_type {
            QpType::Ud => (json!({}), json!({"sq_psn": sq_psn})),
            QpType::Uc => (json!({"peer": peer, "rq_psn": rq_psn}), json!({"sq_psn": sq_psn})),
            _ => (
                json!({
                    "peer": peer, "rq_psn": rq_psn,
                    "max_dest_rd_atomic": connection.responder.max_dest_rd_atomic,
                    "min_rnr_timer": connection.responder.min_rnr_timer,
                }),
                json!({
                    "sq_psn": sq_psn, "timeout": connection.requester.timeout,
                    "retry_cnt": connection.requester.retry_cnt, "rnr_retry": connection.requester.rnr_retry,
                    "max_rd_atomic": connection.requester.max_rd_atomic,
                }),
            ),
        };
        let init = match qp_type {
            QpType::Ud => json!({"qkey": qkey}),
            _ => json!({"access": names(connection.rights)}),
        };
        let modify = |to: Value| json!({"do": "modify", "qp": name, "to": to});
        self.ask_all(&[
            modify(json!({"init": init})),
            modify(json!({"rtr": rtr})),
            modify(json!({"rts": rts})),
        ])?;
        self.kind = Some((qp_type, qkey));
        self.pairs += 1;
        Ok(Qpn::new(number(&made[2]["qpn"], "the queue pair has no number")? as u32))
    }

    fn choose(&mut self, pair: usize) {
        self.chosen = pair;
    }

    fn post_receive(&mut self, id: u64, offset: u32, bytes: u32) -> Result<()> {
        let sge = self.sge(INBOX, offset, bytes)?;
        let (kind, queue) = match self.is_shared {
            true => ("srq", "srq".to_owned()),
            false => ("qp", self.qp()),
        };
        self.ask(json!({"do": "recv", kind: queue, "wrs": [{"id": id, "sges": [sge]}]})).map(drop)
    }

    fn post_send(&mut self, request: &Request, peer: Qpn) -> Result<()> {
        let mut wr = match request.kind {
            RequestKind::Send => json!({"op": "send"}),
            RequestKind::Write => json!({"op": "write"}),
            RequestKind::Read => json!({"op": "read"}),
            RequestKind::CompareSwap { compare, swap } => {
                json!({"op": "compare_swap", "compare": compare, "swap": swap})
            }
            RequestKind::FetchAdd { add } => json!({"op": "fetch_add", "add": add}),
            RequestKind::AtomicWrite => json!({"op": "atomic_write"}),
            RequestKind::Flush => json!({"op": "flush"}),
        };
        let mut flags = vec!["SIGNALED"];
        flags.extend(request.solicited.then_some("SOLICITED"));
        flags.extend(request.fence.then_some("FENCE"));
        (wr["id"], wr["flags"]) = (request.id.into(), flags.into());
        if request.inline {
            wr["inline"] = json!({"length": request.bytes, "seed": SOURCE_SEED});
        } else if request.kind == RequestKind::Flush {
            wr["flush"] = json!({"length": request.bytes, "placement": ["GLOBAL"], "whole": false});
        } else {
            let mut sges = Vec::new();
            for (offset, length) in request.places() {
                let mut sge = self.sge(SOURCE, offset, length)?;
                if request.wrong_key {
                    sge["lkey"] = (self.find(SOURCE)?.lkey ^ u64::from(WRONG_KEY)).into();
                }
                sges.push(sge);
            }
            wr["sges"] = json!(sges);
        }
        if request.kind != RequestKind::Send {
            wr["remote"] = json!({"address": PEER_ADDRESS, "rkey": PEER_KEY});
        }
        if let Some(immediate) = request.immediate {
            wr["imm"] = immediate.into();
        }
        if let Some((QpType::Ud, qkey)) = self.kind {
            wr["destination"] =
                json!({"address": self.network.route().own, "qpn": peer.get(), "qkey": qkey});
        }
        self.post(&wr).map(drop)
    }

    fn bind(&mut self, bind: &Bind) -> Result<RemoteRegion> {
        let (name, MemoryLocation { region, offset }) = (&bind.window, &bind.place);
        let address = self.find(region)?.address + u64::from(*offset);
        if !self.windows.contains_key(name) {
            let window = if bind.is_type_2 { 2 } else { 1 };
            self.ask(json!({"do": "window", "name": name, "pd": "pd", "window_type": window}))?;
        }
        let part = json!({
            "window": name, "region": region, "offset": offset, "length": bind.bytes,
            "access": names(bind.rights),
        });
        let wr = json!({"id": bind.id, "op": "bind_window", "flags": ["SIGNALED"], "bind": part});
        let posted = self.post(&wr)?;
        let rkey = number(&posted["rkeys"][0], "the window has no rkey")? as u32;
        self.windows.insert(name.clone(), rkey);
        Ok(RemoteRegion { address, rkey })
    }

    fn invalidate(&mut self, id: u64, window: &str) -> Result<()> {
        let rkey = self.windows.get(window);
        let rkey = rkey.ok_or_else(|| SubjectError::Broken(format!("unknown window {window}")))?;
        let wr = json!({"id": id, "op": "local_invalidate", "flags": ["SIGNALED"], "rkey": rkey});
        self.post(&wr).map(drop)
    }

    fn join(&mut self, group: IpAddr) -> Result<()> {
        self.ask(json!({"do": "join", "qp": self.qp(), "group": group})).map(drop)
    }

    fn fill(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<()> {
        self.ask(of_pattern("fill", region, offset, bytes, seed)).map(drop)
    }

    fn differs(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<Option<u32>> {
        let differs = self.ask(of_pattern("differs", region, offset, bytes, seed))?;
        Ok(differs["differs"].as_u64().map(|at| at as u32))
    }

    fn set_word(&mut self, region: &str, offset: u32, value: u64) -> Result<()> {
        self.ask(json!({"do": "set_word", "mr": region, "offset": offset, "value": value}))
            .map(drop)
    }

    fn word(&mut self, region: &str, offset: u32) -> Result<u64> {
        let word = self.ask(json!({"do": "word", "mr": region, "offset": offset}))?;
        number(&word["value"], "the word has no value")
    }

    fn completions(&mut self, queue: Queue) -> Result<Vec<Completion>> {
        let cq = match queue {
            Queue::Send => format!("send{}", self.chosen),
            Queue::Receive => format!("receive{}", self.chosen),
        };
        let polled = self.ask(json!({"do": "poll", "cq": cq, "count": 64, "timeout": 0.0}))?;
        let all = polled.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(all
            .iter()
            .map(|wc| Completion {
                id: wc["id"].as_u64().unwrap_or(u64::MAX),
                status: text_of(&wc["status"]),
                bytes: wc["byte_len"].as_u64().unwrap_or_default() as u32,
                immediate: wc["imm"].as_u64().map(|immediate| immediate as u32),
            })
            .collect())
    }

    fn state(&mut self) -> Result<String> {
        Ok(text_of(&self.ask(json!({"do": "query", "qp": self.qp()}))?["state"]))
    }

    fn mtu(&self) -> Mtu {
        self.mtu
    }
}
