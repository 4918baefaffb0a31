use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
};

use roce::{Endpoint, RKey, Remote};
use roce_transport::{ids::Qpn, psn::Psn};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    sharing::{exchange, open},
    *,
};

const INSIDE: &str = "ROCE_TEST_STOPPED";
const TEST: &str = "live::stopped::a_stopped_process_silences_no_other_at_its_address";
const LIMIT: Duration = Duration::from_secs(1);

fn write_end(end: &Endpoint) -> String {
    format!("end {} {} {}", end.gid.to_ip(), end.qpn.get(), end.psn.get())
}

fn read_end(line: &str) -> Option<Endpoint> {
    let mut words = line.strip_prefix("end ")?.split(' ');
    let gid = words.next()?.parse::<IpAddr>().ok()?.into();
    let mut number = || words.next()?.parse().ok();
    Some(Endpoint { gid, qpn: Qpn::new(number()?), psn: Psn::new(number()?) })
}

fn own(address: IpAddr) {
    let side = open(address);
    println!("\n{}", write_end(&side.qp.endpoint(0).unwrap()));
    let Remote { address, rkey } = side.memory.remote(0);
    println!("memory {address} {}", rkey.0);
    let mut lines = std::io::stdin().lines();
    let end = read_end(&lines.next().unwrap().unwrap()).unwrap();
    side.qp.connect_to(end).unwrap();
    println!("connected");
    lines.next(); // until the test ends
    assert_nothing_dropped(&side.context);
}

struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Owner {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

fn spawn(address: IpAddr) -> (Owner, impl Iterator<Item = String>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(INSIDE, address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (Owner(child), lines.map(Result::unwrap))
}

/// The first process at an address, which receives for all, is stopped.
#[test]
fn a_stopped_process_silences_no_other_at_its_address() {
    if let Ok(address) = env::var(INSIDE) {
        return own(address.parse().unwrap());
    }
    let address = own_address();
    let (mut owner, mut lines) = spawn(address);
    let end = lines.find_map(|line| read_end(&line)).unwrap();
    let memory = lines.next().unwrap();
    let mut words = memory.strip_prefix("memory ").unwrap().split(' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let memory = Remote { address: number(), rkey: RKey(number() as u32) };

    let side =
        |sockets_only| Side::on(loopback(OpenOptions { sockets_only, ..OpenOptions::default() }));
    let fars = [true, false].map(side);
    let nears = [(); 2].map(|()| open(address));
    for (near, far) in nears.iter().zip(&fars) {
        connect(near, far);
        (0..10).for_each(|round| exchange(near, far, round));
    }
    // a connection with the stopped process itself
    let with_owner = Side::on(fars[1].context.clone());
    let own_end = write_end(&with_owner.qp.endpoint(0).unwrap());
    with_owner.qp.connect_to(end).unwrap();
    writeln!(owner.0.stdin.as_mut().unwrap(), "{own_end}").unwrap();
    assert_eq!(lines.next().unwrap(), "connected");
    let write_and_read = |seed| {
        let data = noise(50_000, seed);
        with_owner.memory.write_at(0, &data).unwrap();
        let (from, to) = (0..data.len(), 100_000..100_000 + data.len());
        let write = SendWr::write(1, memory, with_owner.memory.sge(from));
        let read = SendWr::read(2, memory, with_owner.memory.sge(to.clone()));
        with_owner.qp.post_send(&[write, read]).unwrap();
        for _ in 0..2 {
            with_owner.next().result.unwrap();
        }
        assert!(with_owner.memory.to_vec(to).unwrap() == data);
    };
    write_and_read(1);

    // All stay: a duplicate response needs its queue pair.
    let mut opened = Vec::new();
    for round in 0..3 {
        owner.signal(Signal::STOP);
        for (near, far) in nears.iter().zip(&fars) {
            let start = Instant::now();
            exchange(far, near, round);
            assert!(start.elapsed() < LIMIT, "round {round}: {:?}", start.elapsed());
            (0..10).for_each(|seed| exchange(near, far, seed));
        }
        let start = Instant::now();
        let new = open(address);
        assert!(start.elapsed() < LIMIT, "round {round}: {:?}", start.elapsed());
        let far = Side::on(fars[0].context.clone());
        connect(&new, &far);
        exchange(&new, &far, round);
        owner.signal(Signal::CONT);
        write_and_read(round);
        (0..10).for_each(|seed| exchange(&far, &new, seed));
        opened.push((new, far));
    }
    drop(owner.0.stdin.take());
    assert!(owner.0.wait().unwrap().success(), "{:?}", lines.collect::<Vec<_>>());
}
