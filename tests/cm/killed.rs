//! Processes at the address of a killed or silent process notify its peers, or peers notice by
//! shared memory.

use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    net::{IpAddr, SocketAddr},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use roce::{
    Context, Device, OpenOptions,
    cm::{CmId, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

use super::{PATIENCE, accept, eventually, forked, next, own_test, port};

const INSIDE: &str = "ROCE_TEST_KILLED";
/// Notification takes milliseconds.
const LIMIT: Duration = Duration::from_secs(1);
/// Proves that no notification comes.
const SILENCE: Duration = Duration::from_millis(1500);

fn open(address: IpAddr, sockets_only: bool) -> Context {
    let options = OpenOptions { sockets_only, ..OpenOptions::default() };
    Device::at(address).unwrap().open(options).unwrap()
}

/// Accepts connections at its address until it must exit.
fn be_another(address: SocketAddr) -> ! {
    let context = open(address.ip(), false);
    let channel = EventChannel::new().unwrap();
    let listener = channel.create_id(PortSpace::Tcp);
    listener.set_context(&context).unwrap();
    listener.bind_addr(address).unwrap();
    listener.listen(16).unwrap();
    println!("\nlistens");
    std::thread::spawn(|| {
        for command in std::io::stdin().lines() {
            match command.unwrap().as_str() {
                "fork" => fork(),
                "exit" => std::process::exit(0), // silently
                _ => {}
            }
        }
        std::process::exit(1); // the test has ended
    });
    let mut ids = Vec::new();
    loop {
        let event = next(&channel);
        match event.kind() {
            EventKind::ConnectRequest => ids.push(accept(&event)),
            EventKind::Established => println!("connected"),
            EventKind::Disconnected => event.id().disconnect().unwrap(),
            kind => assert_eq!(kind, EventKind::TimewaitExit),
        }
    }
}

fn fork() {
    forked::fork(|| {
        let mut byte = 0u8;
        // SAFETY: the byte is this function's
        while unsafe { libc::read(0, (&raw mut byte).cast(), 1) } > 0 {}
        0
    });
    println!("forked");
}

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    fn start(test: &str, address: IpAddr) -> Self {
        Self::start_by(Command::new(env::current_exe().unwrap()), test, address)
    }

    fn start_by(mut command: Command, test: &str, address: IpAddr) -> Self {
        let address = SocketAddr::new(address, port());
        let mut child = command
            .args(["--exact", &format!("killed::{test}"), "--nocapture"])
            .env(INSIDE, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, lines, address };
        process.await_line("listens");
        process
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn exit(&mut self) {
        self.tell("exit");
        assert!(self.child.wait().unwrap().success());
    }

    fn end(&mut self, exits: bool) {
        if exits {
            self.exit();
        } else {
            self.kill();
        }
    }

    fn fork(&mut self) {
        self.tell("fork");
        self.await_line("forked");
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    fn await_line(&mut self, expected: &str) {
        let found = self.lines.find(|line| line.as_ref().is_ok_and(|line| line == expected));
        assert!(found.is_some(), "the other process has ended");
    }
}

struct Program {
    context: Context,
    channel: EventChannel,
}

impl Program {
    fn at(address: IpAddr, sockets_only: bool) -> Self {
        Self { context: open(address, sockets_only), channel: EventChannel::new().unwrap() }
    }

    fn connect(&self, process: &mut Process) -> CmId {
        let id = self.channel.create_id(PortSpace::Tcp);
        id.set_context(&self.context).unwrap();
        // beside time waits of earlier ids
        id.resolve_addr(None, process.address, PATIENCE).unwrap();
        eventually("no address", || self.poll() == Some(EventKind::AddrResolved));
        id.resolve_route(PATIENCE).unwrap();
        eventually("no route", || self.poll() == Some(EventKind::RouteResolved));
        id.create_qp(None, &CmQpAttr::default()).unwrap();
        id.connect(&ConnParam::default()).unwrap();
        eventually("not connected", || self.poll() == Some(EventKind::Established));
        process.await_line("connected");
        id
    }

    /// Skips the end of time waits.
    fn poll(&self) -> Option<EventKind> {
        std::iter::from_fn(|| self.channel.poll())
            .map(|event| event.kind())
            .find(|kind| *kind != EventKind::TimewaitExit)
    }

    #[track_caller]
    fn assert_told(&self, what: &str, ids: &[CmId], since: Instant) {
        let mut left: Vec<_> = ids.iter().collect();
        while !left.is_empty() {
            let event = next(&self.channel);
            if event.kind() == EventKind::TimewaitExit {
                continue;
            }
            assert_eq!(event.kind(), EventKind::Disconnected);
            let index = left.iter().position(|id| **id == *event.id());
            left.swap_remove(index.expect("told twice")).disconnect().unwrap();
        }
        let time = since.elapsed();
        println!("{what}: {} connections, {time:?}", ids.len());
        assert!(time < LIMIT, "{what}: {time:?}");
    }
}

/// In the other process, runs its part of the test.
fn addresses<const N: usize>(test: u8) -> [IpAddr; N] {
    if let Ok(address) = env::var(INSIDE) {
        be_another(address.parse().unwrap());
    }
    let process = std::process::id();
    std::array::from_fn(|host| {
        let last = test * 8 + host as u8 + 1;
        [127, 82 + (process >> 8) as u8 % 64, process as u8, last].into()
    })
}

/// The peer is as if on another host.
#[test]
fn another_at_the_address_tells_its_peers() {
    let [address, far] = addresses(0);
    let test = "another_at_the_address_tells_its_peers";
    let client = Program::at(far, true);
    for is_owner in [true, false] {
        let survivor = (!is_owner).then(|| open(address, false));
        let mut process = Process::start(test, address);
        let survivor = survivor.unwrap_or_else(|| open(address, false));
        for exits in [false, true] {
            let mut ids: Vec<_> = (0..20).map(|_| client.connect(&mut process)).collect();
            ids.truncate(15); // before the others end
            let start = Instant::now();
            process.end(exits);
            let what = format!("owner: {is_owner}, exit: {exits}");
            client.assert_told(&what, &ids, start);
            process = Process::start(test, address);
        }
        eventually("connections of others are left", || survivor.cm_count() == 0);
        assert_eq!(client.poll(), None);
    }
}

/// The killed process has its address alone, and shares memory with its peers.
#[test]
fn peers_on_the_same_host_know_it_themselves() {
    let [address, far, near] = addresses(1);
    let test = "peers_on_the_same_host_know_it_themselves";
    let clients = [far, near].map(|address| Program::at(address, false));
    for exits in [false, true, false] {
        let mut process = Process::start(test, address);
        let ids = clients.each_ref().map(|client| [(); 5].map(|()| client.connect(&mut process)));
        let start = Instant::now();
        process.end(exits);
        for (client, ids) in clients.iter().zip(&ids) {
            client.assert_told(&format!("exit: {exits}"), ids, start);
        }
        // another process at the same address
        let mut next = Process::start(test, address);
        let id = clients[0].connect(&mut next);
        std::thread::sleep(SILENCE);
        assert_eq!(clients[0].poll(), None);
        drop(id);
    }
}

/// The address's owner is killed, too; a survivor is the peer of some.
#[test]
fn one_that_is_left_speaks_for_all() {
    let [address, far] = addresses(2);
    let test = "one_that_is_left_speaks_for_all";
    let mut processes = [(); 4].map(|()| Process::start(test, address));
    let survivor = Program::at(address, false);
    let client = Program::at(far, true);
    let mut connect = |program: &Program| {
        let ids = processes[..3]
            .iter_mut()
            .flat_map(|process| [(); 4].map(|()| program.connect(process)));
        ids.collect::<Vec<_>>()
    };
    let (to_client, to_survivor) = (connect(&client), connect(&survivor));
    let [.., alive] = &mut processes;
    let goes_on = client.connect(alive);
    let start = Instant::now();
    processes[..3].iter_mut().for_each(|process| process.child.kill().unwrap());
    client.assert_told("of three, another host", &to_client, start);
    survivor.assert_told("of three, the survivor", &to_survivor, start);
    std::thread::sleep(SILENCE);
    assert_eq!(client.poll(), None);
    drop(goes_on);
}

/// A forked child neither keeps a process alive nor counts as a survivor.
#[test]
fn a_forked_child_changes_nothing() {
    let [address, far, near] = addresses(3);
    let test = "a_forked_child_changes_nothing";
    let clients = [Program::at(far, true), Program::at(near, false)];
    let _survivor = open(address, false);
    let mut process = Process::start(test, address);
    let ids = clients.each_ref().map(|client| [client.connect(&mut process)]);
    process.fork();
    let start = Instant::now();
    process.child.kill().unwrap();
    for (client, ids) in clients.iter().zip(&ids) {
        client.assert_told("forked", ids, start);
    }
}

#[test]
fn a_limit_on_files() {
    let [address, far, near] = addresses(6);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 40; exec \"$0\" \"$@\""]).arg(env::current_exe().unwrap());
    let mut process = Process::start_by(command, "a_limit_on_files", address);
    for client in [Program::at(far, true), Program::at(near, false)] {
        let _id = client.connect(&mut process);
    }
}

/// Without a process at the address, no peer on another host is notified.
#[test]
fn nobody_is_left() {
    let [address, far] = addresses(4);
    let client = Program::at(far, true);
    let mut process = Process::start("nobody_is_left", address);
    let _id = client.connect(&mut process);
    process.kill();
    std::thread::sleep(SILENCE);
    assert_eq!(client.poll(), None);
}

/// Runs this test in a network namespace with a cable to another. Inside, returns the other's
/// holder.
fn two_hosts(test: &str) -> Option<Child> {
    const NAMESPACE: &str = "ROCE_TEST_NAMESPACE";
    let unshared = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net"]).args(arguments).env(NAMESPACE, "1");
        command
    };
    if env::var_os(NAMESPACE).is_none() {
        let possible =
            unshared(&["ip", "link", "add", "v0", "type", "veth", "peer", "v1"]).output();
        if !possible.as_ref().is_ok_and(|output| output.status.success()) {
            let must = env::var_os("ROCE_NAMESPACES").is_some();
            assert!(!must, "no network namespace can be made: {possible:?}");
            eprintln!("no network namespace can be made here: {test} is left to CI");
            return None;
        }
        let own = env::current_exe().unwrap();
        let test = format!("killed::{test}");
        let test = own_test::named(&test);
        let status = unshared(&[own.to_str().unwrap(), "--exact", test, "--nocapture"]).status();
        assert!(status.unwrap().success(), "inside the namespace");
        return None;
    }
    let holder = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut holder = holder.unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let script = format!(
        "ip link add v0 type veth peer v1
         ip link set v1 netns {0}
         ip address add 10.9.0.1/24 dev v0
         ip link set v0 up
         nsenter --target {0} --net ip address add 10.9.0.2/24 dev v1
         nsenter --target {0} --net ip link set v1 up",
        holder.id()
    );
    assert!(Command::new("sh").args(["-ec", &script]).status().unwrap().success());
    Some(holder)
}

#[test]
fn between_two_hosts() {
    let test = "between_two_hosts";
    let [] = addresses(5);
    let Some(mut holder) = two_hosts(test) else { return };
    let target = holder.id().to_string();
    let start = || {
        let mut command = Command::new("nsenter");
        command.args(["--target", &target, "--net"]).arg(env::current_exe().unwrap());
        Process::start_by(command, test, [10, 9, 0, 2].into())
    };
    let client = Program::at([10, 9, 0, 1].into(), false);
    let mut processes = [start(), start(), start()];
    for (index, what) in ["the owner", "the next owner"].into_iter().enumerate() {
        let ids: Vec<_> = (0..10).map(|_| client.connect(&mut processes[index])).collect();
        let start = Instant::now();
        processes[index].kill();
        client.assert_told(what, &ids, start);
    }
    let _id = client.connect(&mut processes[2]);
    processes[2].kill();
    std::thread::sleep(SILENCE);
    assert_eq!(client.poll(), None, "nobody is left who could tell");
    drop(holder.stdin.take());
    holder.wait().unwrap();
}
