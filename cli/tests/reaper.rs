use std::{
    env, fs,
    io::{BufRead, BufReader, Lines},
    net::{IpAddr, SocketAddr},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use roce::{
    Context, Device, OpenOptions,
    cm::{CmId, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    live::{LIBRARY, roce},
    own_test::named,
};

const INSIDE: &str = "ROCE_TEST_REAPER";
const PATIENCE: Duration = Duration::from_secs(20);
/// Notification takes milliseconds.
const LIMIT: Duration = Duration::from_secs(1);
/// Proves that no notification comes.
const SILENCE: Duration = Duration::from_millis(1500);

fn roce_run(options: &[&str], program: &[&str]) -> Command {
    let mut command = roce();
    command.arg("run").args(options).arg("--library").arg(&*LIBRARY).arg("--").args(program);
    command
}

struct Running {
    tool: Child,
    program: Option<Pid>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(program) = self.program {
            let _ = kill_process(program, Signal::KILL);
        }
        let _ = self.tool.kill();
        let _ = self.tool.wait();
    }
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut tool = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(tool.stdout.take().unwrap()).lines();
        let mut running = Self { tool, program: None, lines };
        running.program = Pid::from_raw(running.line("process ").parse().unwrap());
        running
    }

    fn line(&mut self, start: &str) -> String {
        let found = self.lines.find_map(|line| line.unwrap().strip_prefix(start).map(String::from));
        found.expect("the program has ended")
    }

    fn signal_tool(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.tool), signal).unwrap();
    }

    fn kill(&mut self) {
        kill_process(self.program.take().unwrap(), Signal::KILL).unwrap();
    }

    fn status(&mut self) -> Option<i32> {
        let status = self.tool.wait().unwrap();
        self.program = None; // its PID may be reused
        status.code()
    }
}

#[test]
fn the_tool_ends_as_the_program_does() {
    for (script, expected) in
        [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill $$", 143)]
    {
        let status = roce_run(&["--reaper"], &["sh", "-c", script]).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{script}");
    }
    // as without a reaper
    for options in [&[][..], &["--reaper"]] {
        let missing = roce_run(options, &["./there-is-none"]).output().unwrap();
        assert_eq!(missing.status.code(), Some(127), "{missing:?}");
        let unusable = roce_run(options, &["/proc/self/environ"]).output().unwrap();
        assert_eq!(unusable.status.code(), Some(126), "{unusable:?}");
    }
    let killed = roce_run(&[], &["sh", "-c", "kill -KILL $$"]).status().unwrap();
    assert_eq!(killed.signal(), Some(9));
}

#[test]
fn signals_are_passed_on() {
    const SCRIPT: &str = "trap 'exit 41' USR1; trap 'exit 42' HUP; echo process $$; \
                          while :; do sleep 0.01; done";
    let signals = [
        (Signal::USR1, 41),
        (Signal::HUP, 42),
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
        (Signal::USR2, 140),
    ];
    for (signal, expected) in signals {
        let mut running = Running::start(roce_run(&["--reaper"], &["sh", "-c", SCRIPT]));
        running.signal_tool(signal);
        assert_eq!(running.status(), Some(expected), "{signal:?}");
    }
}

/// The program has the tool's signal mask.
#[test]
fn the_program_blocks_no_signals() {
    let output =
        roce_run(&["--reaper"], &["grep", "SigBlk", "/proc/self/status"]).output().unwrap();
    let expected = fs::read_to_string("/proc/thread-self/status").unwrap();
    let expected = expected.lines().find(|line| line.starts_with("SigBlk")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), expected);
}

fn next(channel: &EventChannel) -> (EventKind, CmId) {
    loop {
        let event = channel.wait(Some(PATIENCE)).unwrap();
        match event.kind() {
            EventKind::TimewaitExit => {}
            kind => return (kind, event.id().clone()),
        }
    }
}

fn open(address: IpAddr, sockets_only: bool) -> Context {
    let options = OpenOptions { sockets_only, ..OpenOptions::default() };
    Device::at(address).unwrap().open(options).unwrap()
}

/// Accepts connections.
fn be_the_program(address: SocketAddr) -> ! {
    // closed and reopened devices change nothing
    drop(open(address.ip(), false));
    let context = open(address.ip(), false);
    let channel = EventChannel::new().unwrap();
    let listener = channel.create_id(PortSpace::Tcp);
    listener.set_context(&context).unwrap();
    listener.bind_addr(address).unwrap();
    listener.listen(16).unwrap();
    println!("\nprocess {}", std::process::id());
    let mut ids = Vec::new();
    loop {
        match next(&channel) {
            (EventKind::ConnectRequest, id) => {
                id.create_qp(None, &CmQpAttr::default()).unwrap();
                id.accept(&ConnParam::default()).unwrap();
                ids.push(id);
            }
            (kind, _) => assert_eq!(kind, EventKind::Established),
        }
    }
}

/// Of the program and of a peer as if on another host. In the program, runs its part.
fn addresses(test: u8) -> [IpAddr; 2] {
    if let Ok(address) = env::var(INSIDE) {
        be_the_program(address.parse().unwrap());
    }
    let process = std::process::id();
    [1, 2].map(|host| [127, 150 + (process >> 8) as u8 % 64, process as u8, test * 2 + host].into())
}

struct Client {
    _context: Context,
    channel: EventChannel,
    ids: Vec<CmId>,
}

impl Client {
    fn connect(from: IpAddr, to: SocketAddr, count: usize) -> Self {
        let (context, channel) = (open(from, true), EventChannel::new().unwrap());
        let mut ids = Vec::new();
        for _ in 0..count {
            let id = channel.create_id(PortSpace::Tcp);
            id.set_context(&context).unwrap();
            id.resolve_addr(None, to, PATIENCE).unwrap();
            assert_eq!(next(&channel).0, EventKind::AddrResolved);
            id.resolve_route(PATIENCE).unwrap();
            assert_eq!(next(&channel).0, EventKind::RouteResolved);
            id.create_qp(None, &CmQpAttr::default()).unwrap();
            id.connect(&ConnParam::default()).unwrap();
            assert_eq!(next(&channel).0, EventKind::Established);
            ids.push(id);
        }
        Self { _context: context, channel, ids }
    }

    #[track_caller]
    fn assert_told(&self, what: &str, since: Instant) {
        for _ in &self.ids {
            let (kind, id) = next(&self.channel);
            assert_eq!(kind, EventKind::Disconnected);
            id.disconnect().unwrap();
        }
        let time = since.elapsed();
        println!("{what}: {} connections, {time:?}", self.ids.len());
        assert!(time < LIMIT, "{what}: {time:?}");
    }
}

fn program(options: &[&str], test: &str, at: SocketAddr) -> Running {
    let own = env::current_exe().unwrap();
    let test = format!("reaper::{test}");
    let arguments = [own.to_str().unwrap(), "--exact", named(&test), "--nocapture"];
    let mut command = roce_run(options, &arguments);
    command.env(INSIDE, at.to_string());
    Running::start(command)
}

#[test]
fn peers_of_a_killed_program_are_told() {
    let [address, far] = addresses(0);
    for round in 0..3 {
        let at = SocketAddr::new(address, 7100 + round);
        let mut running = program(&["--reaper"], "peers_of_a_killed_program_are_told", at);
        let client = Client::connect(far, at, 10);
        let start = Instant::now();
        running.kill();
        client.assert_told("killed", start);
        assert_eq!(running.status(), Some(137));
        // The peers have responded: nothing delays the end.
        println!("the tool has ended after {:?}", start.elapsed());
        assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    }
}

#[test]
fn a_tool_that_comes_late() {
    let [address, far] = addresses(4);
    let at = SocketAddr::new(address, 7500);
    let own = env::current_exe().unwrap();
    let script = format!(
        "kill -STOP $PPID; exec {} --exact {} --nocapture",
        own.to_str().unwrap(),
        named("reaper::a_tool_that_comes_late")
    );
    let mut command = roce_run(&["--reaper"], &["sh", "-c", &script]);
    command.env(INSIDE, at.to_string());
    let mut running = Running::start(command);
    let client = Client::connect(far, at, 3);
    let status = format!("/proc/{}/status", running.program.unwrap().as_raw_pid());
    running.kill();
    while !fs::read_to_string(&status).unwrap().contains("State:\tZ") {
        std::thread::yield_now();
    }
    let start = Instant::now();
    running.signal_tool(Signal::CONT);
    client.assert_told("the tool comes late", start);
    assert_eq!(running.status(), Some(137));
}

#[test]
fn a_peer_that_does_not_respond() {
    let [address, far] = addresses(1);
    let at = SocketAddr::new(address, 7200);
    let mut running = program(&["--reaper"], "a_peer_that_does_not_respond", at);
    let client = Client::connect(far, at, 1);
    let start = Instant::now();
    running.kill();
    assert_eq!(running.status(), Some(137));
    assert!(start.elapsed() < 4 * LIMIT, "{:?}", start.elapsed());
    assert_eq!(next(&client.channel).0, EventKind::Disconnected);
}

#[test]
fn without_a_reaper() {
    let [address, far] = addresses(2);
    let at = SocketAddr::new(address, 7300);
    let mut running = program(&[], "without_a_reaper", at);
    let client = Client::connect(far, at, 1);
    running.kill();
    std::thread::sleep(SILENCE);
    assert!(client.channel.poll().is_none());
}

#[test]
fn a_process_of_the_programs() {
    let [address, far] = addresses(3);
    let at = SocketAddr::new(address, 7400);
    let own = env::current_exe().unwrap();
    let script = format!(
        "{} --exact {} --nocapture & exec sleep 60",
        own.to_str().unwrap(),
        named("reaper::a_process_of_the_programs")
    );
    let mut command = roce_run(&["--reaper"], &["sh", "-c", &script]);
    command.env(INSIDE, at.to_string());
    let mut running = Running::start(command);
    let client = Client::connect(far, at, 3);
    let start = Instant::now();
    running.kill();
    client.assert_told("a process of the program's", start);
    assert!(running.tool.try_wait().unwrap().is_none(), "the program runs on");
    running.signal_tool(Signal::TERM);
    assert_eq!(running.status(), Some(143));
}
