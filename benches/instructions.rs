//! Instructions of two adapters per message, counted by valgrind, without sockets and threads.
//!
//! `cargo bench --bench instructions` fails if a scenario costs 3 % more than in
//! `benches/instructions.txt`. `-- --record` writes that file. Counts of another compiler or
//! processor are not compared. `-- --keep DIRECTORY` keeps the profiles, for `callgrind_annotate`.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use roce::{
    Access, AddressVector, Gid, Init, Mtu, PeerAttr, QpCaps, QpType, Qpn, RecvWr, RequesterAttr,
    ResponderAttr, Rtr, Rts, SendWr,
    transport::{
        adapter::{Adapter, AdapterConfig, PdId, TransmitBuffer, TransmitLimits},
        mem::{HeapMemory, MrAttr},
        psn::Psn,
        qp::QpInit,
        time::Instant,
        wire::{DatagramMeta, DatagramRun},
        work::{CompletionQueue, Remote, Sge},
    },
};

/// Counted rounds, after as many uncounted rounds, in which tables and windows grow.
const ROUNDS: u64 = 200;
/// Tolerated ratio.
const RISE: f64 = 1.03;
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
/// Bytes registered by each side.
const MEMORY: u32 = 1 << 20;
/// Limits of Linux's UDP_SEGMENT.
const LIMITS: TransmitLimits = TransmitLimits { segments: 128, bytes: 65_507 };

/// Requests of a round, all posted before the first packet leaves.
struct Scenario {
    name: &'static str,
    mtu: Mtu,
    requests: u64,
    length: u32,
    operation: Operation,
    /// Through the host's memory, without ICRCs.
    by_memory: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Write,
    Read,
    Send,
    FetchAdd,
}

const SCENARIOS: [Scenario; 12] = {
    use Operation::{FetchAdd, Read, Send, Write};
    const fn scenario(
        name: &'static str,
        operation: Operation,
        length: u32,
        mtu: Mtu,
        requests: u64,
    ) -> Scenario {
        Scenario { name, mtu, requests, length, operation, by_memory: false }
    }
    [
        scenario("write/64KiB/mtu4096", Write, 65_536, Mtu::B4096, 1),
        scenario("write/64KiB/mtu1024", Write, 65_536, Mtu::B1024, 1),
        scenario("read/64KiB/mtu4096", Read, 65_536, Mtu::B4096, 1),
        scenario("read/64KiB/mtu1024", Read, 65_536, Mtu::B1024, 1),
        scenario("write/8B/single", Write, 8, Mtu::B1024, 1),
        scenario("send/8B/single", Send, 8, Mtu::B1024, 1),
        scenario("send/64B/lists-of-32", Send, 64, Mtu::B1024, 32),
        scenario("read/8B/single", Read, 8, Mtu::B1024, 1),
        scenario("fetch-add/single", FetchAdd, 8, Mtu::B1024, 1),
        Scenario {
            by_memory: true,
            ..scenario("memory/write/64KiB/mtu4096", Write, 65_536, Mtu::B4096, 1)
        },
        Scenario {
            by_memory: true,
            ..scenario("memory/write/64KiB/mtu1024", Write, 65_536, Mtu::B1024, 1)
        },
        Scenario {
            by_memory: true,
            ..scenario("memory/send/64B/lists-of-32", Send, 64, Mtu::B4096, 32)
        },
    ]
};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = env::args().skip(1).filter(|word| word != "--bench");
    match arguments.next().as_deref() {
        None => compare(None),
        Some("--record") => record(),
        Some("--keep") => {
            compare(Some(&PathBuf::from(arguments.next().ok_or("--keep DIRECTORY")?)))
        }
        Some("--scenario") => {
            let name = arguments.next().ok_or("--scenario NAME")?;
            let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
            play(found.ok_or_else(|| format!("unknown scenario {name}"))?);
            Ok(ExitCode::SUCCESS)
        }
        Some(word) => {
            Err(format!("{word}: wanted --record, or --keep DIRECTORY, or nothing").into())
        }
    }
}

fn compare(keep: Option<&Path>) -> Result<ExitCode, Box<dyn Error>> {
    let text = fs::read_to_string(RECORD)?;
    let (by, recorded) = parse(&text);
    let comparable = by == builder()?;
    if !comparable {
        println!("counted by {}, recorded by {by}: not compared", builder()?);
    }
    println!("{:28} {:>12} {:>12} {:>8}", "scenario", "a message", "recorded", "ratio");
    let mut dearer = Vec::new();
    for scenario in &SCENARIOS {
        let count = count(scenario, keep)?;
        let before = *recorded.get(scenario.name).ok_or_else(|| {
            format!("{}: not in {RECORD}; `-- --record` writes it", scenario.name)
        })?;
        let ratio = count / before;
        println!("{:28} {count:12.0} {before:12.0} {ratio:8.3}", scenario.name);
        if comparable && ratio > RISE {
            dearer.push(scenario.name);
        }
    }
    if dearer.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "more than {:.0} % dearer: {}; if that is meant, `cargo bench --bench instructions -- --record`",
        (RISE - 1.0) * 100.0,
        dearer.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

fn record() -> Result<ExitCode, Box<dyn Error>> {
    let mut text = format!("{}\n", builder()?);
    for scenario in &SCENARIOS {
        text += &format!("{:28} {:8.0}\n", scenario.name, count(scenario, None)?);
    }
    print!("{text}");
    fs::write(RECORD, text)?;
    Ok(ExitCode::SUCCESS)
}

/// The first line is the [`builder`]; others have a scenario and its count.
fn parse(text: &str) -> (&str, BTreeMap<&str, f64>) {
    let (by, rows) = text.split_once('\n').unwrap_or((text, ""));
    let counts = rows.lines().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        Some((name, count.trim().parse().ok()?))
    });
    (by, counts.collect())
}

/// Compiler and processor.
fn builder() -> Result<String, Box<dyn Error>> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(format!("{} {}", String::from_utf8(output.stdout)?.trim(), env::consts::ARCH))
}

/// Instructions per message, of both sides.
fn count(scenario: &Scenario, keep: Option<&Path>) -> Result<f64, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let profile = match keep {
        Some(directory) => {
            fs::create_dir_all(directory)?;
            directory.join(format!("callgrind.{}", scenario.name.replace('/', "-")))
        }
        None => directory.path().join("callgrind"),
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*counted_rounds*"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(env::current_exe()?)
        .args(["--scenario", scenario.name])
        // the same copying routines on every processor
        .env(
            "GLIBC_TUNABLES",
            "glibc.cpu.hwcaps=-ERMS,-FSRM,-AVX2,-AVX512VL,-AVX_Fast_Unaligned_Load",
        )
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let profile = fs::read_to_string(&profile)?;
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let total: f64 = totals.ok_or("callgrind has counted nothing")?.trim().parse()?;
    Ok(total / (ROUNDS * scenario.requests) as f64)
}

fn play(scenario: &Scenario) {
    let mut world = World::new(scenario);
    for _ in 0..ROUNDS {
        world.round();
    }
    counted_rounds(&mut world);
}

#[inline(never)]
fn counted_rounds(world: &mut World<'_>) {
    for _ in 0..ROUNDS {
        world.round();
    }
}

/// Two connected adapters.
struct World<'a> {
    scenario: &'a Scenario,
    now: Instant,
    adapters: [Adapter; 2],
    cqs: [Arc<CompletionQueue>; 2],
    qpn: Qpn,
    request: SendWr,
    receive: RecvWr,
    buffer: TransmitBuffer,
    meta: DatagramMeta,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let gids = [1, 2].map(|host| Gid::from(std::net::IpAddr::from([10, 0, 0, host])));
        // equal seeds: equal queue pair numbers
        let mut adapters = gids.map(|gid| {
            let mut adapter = Adapter::new(AdapterConfig::new([3; 32]));
            adapter.set_gids(vec![gid]);
            adapter
        });
        let sides = [0, 1].map(|index: usize| {
            let adapter = &mut adapters[index];
            let pd = adapter.alloc_pd().unwrap();
            let cq = adapter.create_cq(1024).unwrap();
            let memory = Arc::new(HeapMemory::new(MEMORY as usize));
            let access = Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC;
            let region = adapter.register(pd, MrAttr { memory, address: 0, access }).unwrap();
            let qpn = connect(adapter, &cq, pd, gids[1 - index], scenario.mtu);
            (cq, region, qpn)
        });
        let [(near, own, qpn), (far, others, _)] = sides;
        let remote = Remote { address: 0, rkey: others.rkey() };
        let piece = Sge { lkey: own.lkey(), address: 0, length: scenario.length };
        let request = match scenario.operation {
            Operation::Write => SendWr::write(1, remote, piece),
            Operation::Read => SendWr::read(1, remote, piece),
            Operation::Send => SendWr::send(1, piece),
            Operation::FetchAdd => SendWr::fetch_add(1, remote, 1, piece),
        };
        let receive =
            RecvWr::new(1, [Sge { lkey: others.lkey(), address: 0, length: scenario.length }]);
        let buffer = if scenario.by_memory {
            TransmitBuffer::unsealed(256 << 10, LIMITS)
        } else {
            TransmitBuffer::new(256 << 10, LIMITS)
        };
        Self {
            scenario,
            now: Instant::ZERO,
            adapters,
            cqs: [near, far],
            qpn,
            request,
            receive,
            buffer,
            meta: DatagramMeta { checksum_verified: scenario.by_memory, ..DatagramMeta::default() },
        }
    }

    fn round(&mut self) {
        let sends = self.scenario.operation == Operation::Send;
        for _ in 0..self.scenario.requests {
            if sends {
                self.adapters[1].post_recv(self.now, self.qpn, &self.receive).unwrap();
            }
            self.adapters[0].post_send(self.now, self.qpn, &self.request).unwrap();
        }
        let mut idle = 0;
        while idle < 2 {
            for from in 0..2 {
                self.buffer.clear();
                self.adapters[from].poll_transmit(self.now, &mut self.buffer);
                self.now = self.now.plus(Duration::from_micros(1));
                idle = if self.buffer.is_empty() { idle + 1 } else { 0 };
                for run in self.buffer.runs() {
                    let run = DatagramRun {
                        net: &run.net_header(0),
                        bytes: self.buffer.payload(run),
                        segment: run.segment,
                        meta: self.meta,
                    };
                    self.adapters[1 - from].handle_run(self.now, &run);
                }
                while self.adapters[1 - from].poll_event().is_some() {}
            }
        }
        for _ in 0..self.scenario.requests {
            self.cqs[0].pop().unwrap().result.unwrap();
            if sends {
                self.cqs[1].pop().unwrap().result.unwrap();
            }
        }
    }
}

fn connect(
    adapter: &mut Adapter,
    cq: &Arc<CompletionQueue>,
    pd: PdId,
    peer: Gid,
    path_mtu: Mtu,
) -> Qpn {
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        caps: QpCaps::default(),
        sq_sig_all: false,
        pd,
        quirks: Default::default(),
    };
    let qpn = adapter.create_qp(init).unwrap();
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    adapter.to_init(qpn, &Init { access, ..Init::default() }).unwrap();
    let av = AddressVector::new(peer, 0);
    let peer = PeerAttr { dest_qpn: qpn, path_mtu, rq_psn: Psn::new(0), av };
    let responder = ResponderAttr { max_dest_rd_atomic: 16, min_rnr_timer: 1 };
    adapter.to_rtr(qpn, &Rtr::Rc(peer, responder)).unwrap();
    let requester = RequesterAttr { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 };
    adapter.to_rts(Instant::ZERO, qpn, &Rts::Rc(Psn::new(0), requester)).unwrap();
    qpn
}
