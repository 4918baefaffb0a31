//! In a network namespace. Without namespaces only unit tests cover the logic; with
//! `ROCE_NAMESPACES=1`, as in CI, that is an error.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use roce::{
    Access, AddressVector, AsyncEvent, CompletionQueue, Context, Data, Device, Init, Mtu,
    OpenOptions, PeerAttr, Progress, QpInitAttr, QpType, RequesterAttr, ResponderAttr, Rtr, Rts,
    SendWr, Wc,
};
use roce_transport::psn::Psn;
use rustix::{
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
        socket_with,
    },
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};

mod reach;

const TIMEOUT: Duration = Duration::from_secs(20);
const INSIDE: &str = "ROCE_TEST_INSIDE";

/// True inside a namespace; outside, runs this test in a namespace.
fn inside(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    // /sys has the interfaces' MTUs.
    let unshared = |script: &str, argument: &OsStr| {
        let mut command = Command::new("unshare");
        command
            .args(["--map-root-user", "--net", "--mount", "sh", "-c"])
            .arg(format!("mount -t sysfs roce /sys && {script}"));
        command.arg("sh").arg(argument).env(INSIDE, "1");
        // tc's directory is not in the PATH of Debian's users.
        let path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        command.env("PATH", env::join_paths(places).unwrap());
        command
    };
    let possible = unshared("ip link add v0 type veth peer name v1", OsStr::new("")).output();
    if !possible.as_ref().is_ok_and(|output| output.status.success()) {
        assert!(
            env::var_os("ROCE_NAMESPACES").is_none(),
            "no network namespace can be made: {possible:?}"
        );
        eprintln!("no network namespace can be made here: {test} is left to CI");
        return false;
    }
    let own = env::current_exe().unwrap();
    let status = unshared(
        &format!("exec \"$1\" --exact {} --nocapture", crate::own_test::named(test)),
        own.as_os_str(),
    )
    .status()
    .unwrap();
    assert!(status.success(), "inside the namespace");
    false
}

fn ip(command: &str) {
    let output = Command::new("ip").args(command.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
}

fn cable() {
    ip("link set lo up");
    ip("link add v0 type veth peer name v1");
    for end in ["v0", "v1"] {
        ip(&format!("link set {end} addrgenmode none"));
        ip(&format!("link set {end} up"));
    }
}

#[track_caller]
fn expect(context: &Context, event: AsyncEvent) {
    let limit = rustix::event::Timespec::try_from(TIMEOUT).unwrap();
    let mut polled = [rustix::event::PollFd::new(context, rustix::event::PollFlags::IN)];
    assert_eq!(
        rustix::event::poll(&mut polled, Some(&limit)),
        Ok(1),
        "no event; {event} was expected"
    );
    assert_eq!(context.poll_async_event(), Some(event));
}

#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn gids(context: &Context) -> Vec<String> {
    context.gids().iter().map(ToString::to_string).collect()
}

/// A queue pair connected to itself carries a message.
#[track_caller]
fn works_over(context: &Context, sgid_index: u16) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None).unwrap();
    let memory = pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.to_init(Init { access: Access::REMOTE_WRITE, ..Init::default() }).unwrap();
    qp.to_rtr(Rtr::Rc(
        PeerAttr {
            dest_qpn: qp.qpn(),
            path_mtu: Mtu::B256,
            rq_psn: Psn::new(7),
            av: AddressVector::new(context.query_gid(sgid_index).unwrap(), sgid_index),
        },
        ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 12 },
    ))
    .unwrap();
    qp.to_rts(Rts::Rc(
        Psn::new(7),
        RequesterAttr { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 },
    ))
    .unwrap();
    qp.post_send(&[SendWr::write(1, memory.remote(0), Data::inline(b"followed"))]).unwrap();
    completion(&cq).result.unwrap();
    assert_eq!(memory.to_vec(0..8).unwrap(), b"followed");
}

#[track_caller]
fn completion(cq: &CompletionQueue) -> Wc {
    let start = Instant::now();
    loop {
        if let Some(wc) = cq.poll_one() {
            return wc;
        }
        assert!(start.elapsed() < TIMEOUT, "no completion");
    }
}

/// Two devices write to each other.
#[track_caller]
fn work_together(contexts: &[Context; 2], gid_index: u16) {
    let sides = contexts.each_ref().map(|context| {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        (cq, qp, pd.allocate(8, access).unwrap())
    });
    let [end_a, end_b] = sides.each_ref().map(|(_, qp, _)| qp.endpoint(gid_index).unwrap());
    sides[0].1.connect_to(end_b).unwrap();
    sides[1].1.connect_to(end_a).unwrap();
    for (from, to) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let (cq, qp, _) = from;
        qp.post_send(&[SendWr::write(1, to.2.remote(0), Data::inline(b"together"))]).unwrap();
        completion(cq).result.unwrap();
        assert_eq!(to.2.to_vec(0..8).unwrap(), b"together");
    }
}

#[test]
fn addresses_come_and_go() {
    if !inside("interface::addresses_come_and_go") {
        return;
    }
    cable();
    ip("addr add 10.9.0.1/32 dev v0");
    let context = Device::named("roce_v0").unwrap().open(OpenOptions::default()).unwrap();
    assert_eq!(
        gids(&context),
        ["::ffff:10.9.0.1"; 2],
        "without a link-local address it is at 1, too"
    );

    ip("addr add 10.9.0.2/32 dev v0");
    expect(&context, AsyncEvent::GidChange);
    assert_eq!(gids(&context), ["::ffff:10.9.0.1", "::ffff:10.9.0.1", "::ffff:10.9.0.2"]);
    works_over(&context, 2);

    ip("addr del 10.9.0.1/32 dev v0");
    expect(&context, AsyncEvent::GidChange);
    assert_eq!(gids(&context), ["::", "::", "::ffff:10.9.0.2"], "the others keep their index");
    assert_eq!(context.query_gid_table().iter().map(|entry| entry.index).collect::<Vec<_>>(), [2]);
    works_over(&context, 2);

    ip("addr add fd09::3/128 dev v0 nodad");
    expect(&context, AsyncEvent::GidChange);
    let again = "an unused entry is used again";
    assert_eq!(gids(&context), ["fd09::3", "::", "::ffff:10.9.0.2"], "{again}");
    works_over(&context, 0);
    ip("addr add 10.9.0.4/32 dev v1");
    ip("addr add 10.9.0.5/32 dev v0");
    expect(&context, AsyncEvent::GidChange);
    assert_eq!(
        gids(&context),
        ["fd09::3", "::ffff:10.9.0.5", "::ffff:10.9.0.2"],
        "addresses of other interfaces are not its own"
    );

    // Sending from a removed address is a counted error.
    let errors = context.link_counters().send_errors;
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None).unwrap();
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.connect_to(qp.endpoint(1).unwrap()).unwrap();
    let used = context.gids().iter().position(|gid| gid.to_ip().is_ipv4()).unwrap();
    assert_eq!(used, 1);
    ip("addr del 10.9.0.5/32 dev v0");
    expect(&context, AsyncEvent::GidChange);
    qp.post_send(&[SendWr::send(1, Data::empty())]).unwrap();
    assert!(context.link_counters().send_errors > errors);
    assert!(context.link_counters().last_send_error.unwrap().contains("10.9.0.5"));
}

#[test]
fn the_interface_goes_down_and_away() {
    if !inside("interface::the_interface_goes_down_and_away") {
        return;
    }
    cable();
    ip("addr add 10.9.0.1/32 dev v0");
    let context = Device::named("roce_v0").unwrap().open(OpenOptions::default()).unwrap();
    assert_eq!((context.query_port().active, context.active_mtu()), (true, Mtu::B1024));
    ip("link set v1 down");
    expect(&context, AsyncEvent::PortError);
    assert!(!context.query_port().active, "the cable is out");
    ip("link set v1 up");
    expect(&context, AsyncEvent::PortActive);
    ip("link set v0 down");
    expect(&context, AsyncEvent::PortError);
    ip("link set v0 up");
    expect(&context, AsyncEvent::PortActive);
    works_over(&context, 0);
    ip("link set v0 mtu 4200");
    eventually("the port's MTU follows", || context.active_mtu() == Mtu::B4096);
    ip("link set v0 mtu 600");
    eventually("the port's MTU follows", || context.active_mtu() == Mtu::B512);
    assert_eq!(context.query_port().max_mtu, Mtu::B4096);
    assert_eq!(context.poll_async_event(), None, "an MTU is no event");
    ip("link del v0");
    let mut events = Vec::new();
    eventually("both events", || {
        // Address or carrier may go first, or both with the interface.
        gids(&context) == ["::"; 2] && !context.query_port().active
    });
    while let Some(event) = context.poll_async_event() {
        events.push(event);
    }
    events.sort_by_key(|event| *event != AsyncEvent::PortError);
    assert_eq!(events, [AsyncEvent::PortError, AsyncEvent::GidChange]);
}

/// The device has its address or none; the descriptor of an event loop becomes readable.
#[test]
fn a_single_address_by_hand() {
    if !inside("interface::a_single_address_by_hand") {
        return;
    }
    cable();
    ip("addr add 10.9.0.1/32 dev v0");
    let options = OpenOptions { progress: Progress::Manual, ..OpenOptions::default() };
    let context = Device::named("udp:10.9.0.1").unwrap().open(options).unwrap();
    let next = |event| {
        let start = Instant::now();
        loop {
            assert!(progress_is_due(&context, TIMEOUT) && start.elapsed() < TIMEOUT, "no event");
            context.progress();
            if let Some(came) = context.poll_async_event() {
                assert_eq!(came, event);
                return;
            }
        }
    };
    ip("addr add 10.9.0.2/32 dev v0");
    ip("addr del 10.9.0.1/32 dev v0");
    next(AsyncEvent::GidChange);
    assert_eq!(gids(&context), ["::"; 2]);
    ip("addr add 10.9.0.1/32 dev v0");
    next(AsyncEvent::GidChange);
    assert_eq!(gids(&context), ["::ffff:10.9.0.1"; 2]);
    works_over(&context, 0);

    // Packets for the new address make the descriptor readable, too.
    while progress_is_due(&context, Duration::ZERO) {
        context.progress();
    }
    let cq = context.create_cq(16, None).unwrap();
    let qp = context.alloc_pd().unwrap().create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
    qp.post_send(&[SendWr::write(
        1,
        roce::Remote { address: 0, rkey: roce::RKey(0) },
        Data::empty(),
    )])
    .unwrap();
    assert!(progress_is_due(&context, TIMEOUT));
}

fn progress_is_due(context: &Context, limit: Duration) -> bool {
    let limit = rustix::event::Timespec::try_from(limit).unwrap();
    let mut polled = [rustix::event::PollFd::from_borrowed_fd(
        context.progress_fd(),
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut polled, Some(&limit)) == Ok(1)
}

#[test]
fn loopback_keeps_its_address() {
    if !inside("interface::loopback_keeps_its_address") {
        return;
    }
    ip("link set lo up");
    let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
    let second = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
    assert_eq!(
        (gids(&context)[0].as_str(), gids(&second)[0].as_str()),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.2")
    );
    ip("link set lo down");
    expect(&context, AsyncEvent::PortError);
    expect(&second, AsyncEvent::PortError);
    ip("link set lo up");
    expect(&second, AsyncEvent::PortActive);
    works_over(&second, 0);
    assert_eq!(gids(&second), ["::ffff:127.0.0.2"; 2]);
}

/// Packets between the addresses take the cable within this namespace.
fn two_hosts() {
    cable();
    for (end, host) in [("v0", 1), ("v1", 2)] {
        fs::write(format!("/proc/sys/net/ipv4/conf/{end}/accept_local"), "1").unwrap();
        ip(&format!("addr add 10.9.0.{host}/24 dev {end}"));
        ip(&format!("addr add fd09::{host}/64 dev {end} nodad"));
    }
    for (family, net) in [("-4", "10.9.0."), ("-6", "fd09::")] {
        // local lookup for received packets only
        ip(&format!("{family} rule add pref 1 iif v0 lookup local"));
        ip(&format!("{family} rule add pref 1 iif v1 lookup local"));
        for (end, host) in [("v1", 1), ("v0", 2)] {
            ip(&format!("{family} rule add pref 2 to {net}{host} lookup 100"));
            ip(&format!("{family} route add {net}{host} dev {end} table 100"));
        }
        ip(&format!("{family} rule add pref 3 lookup local"));
        ip(&format!("{family} rule del pref 0"));
    }
}

/// ICMP "fragmentation needed" from `peer`'s host to `victim`.
fn say_too_large(victim: IpAddr, peer: IpAddr) {
    use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
    let ports = 4791_u16.to_be_bytes().repeat(2);
    let udp = [&ports[..], &[4, 0, 0, 0]].concat();
    let (family, protocol, message) = match (victim, peer) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = [0x45, 0, 4, 20, 0, 0, 0x40, 0, 64, 17, 0, 0];
            let quoted = [&header[..], &from.octets(), &to.octets(), &udp].concat();
            let mut message = [&[3, 4, 0, 0, 0, 0][..], &552_u16.to_be_bytes(), &quoted].concat();
            let words = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            let sum: u32 = words.sum();
            let sum = !(((sum >> 16) + (sum & 0xFFFF)) as u16);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            (AddressFamily::INET, ipproto::ICMP, message)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = [0x60, 0, 0, 0, 4, 0, 17, 64];
            let quoted = [&header[..], &from.octets(), &to.octets(), &udp].concat();
            // the kernel fills in the checksum
            let message = [&[2, 0, 0, 0][..], &1280_u32.to_be_bytes(), &quoted].concat();
            (AddressFamily::INET6, ipproto::ICMPV6, message)
        }
        _ => unreachable!("one family"),
    };
    let raw = socket(family, SocketType::RAW, Some(protocol)).unwrap();
    let sent = sendto(&raw, &message, SendFlags::empty(), &SocketAddr::new(victim, 0)).unwrap();
    assert_eq!(sent, message.len());
}

fn fragmented() -> Vec<String> {
    let v4 = fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = v4.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let column = lines.next().unwrap().split(' ').position(|name| name == "FragCreates").unwrap();
    let v4 = lines.next().unwrap().split(' ').nth(column).unwrap().to_owned();
    let v6 = fs::read_to_string("/proc/net/snmp6").unwrap();
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Ip6FragCreates")).unwrap();
    vec![v4, v6.trim().to_owned()]
}

/// Any host can forge this message. A datagram beyond the MTU is refused, never fragmented.
#[test]
fn a_forged_path_mtu_is_not_believed() {
    if !inside("interface::a_forged_path_mtu_is_not_believed") {
        return;
    }
    two_hosts();
    for (mtu, smaller, victim, peer) in
        [(9000, 1400, "fd09::1", "fd09::2"), (1500, 1000, "10.9.0.1", "10.9.0.2")]
    {
        for end in ["v0", "v1"] {
            ip(&format!("link set {end} mtu {mtu}"));
        }
        let addresses: [IpAddr; 2] = [victim, peer].map(|address| address.parse().unwrap());
        let sides = addresses.map(|address| {
            let options = OpenOptions { sockets_only: true, ..OpenOptions::default() };
            let context = Device::at(address).unwrap().open(options).unwrap();
            let pd = context.alloc_pd().unwrap();
            let cq = context.create_cq(16, None).unwrap();
            let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            (context, cq, qp, pd.allocate(1 << 16, access).unwrap())
        });
        let [(context, cq, qp, memory), (_, _, peer_qp, target)] = &sides;
        qp.connect_to(peer_qp.endpoint(0).unwrap()).unwrap();
        peer_qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
        let write = |length| {
            let write = SendWr::write(1, target.remote(0), memory.sge(0..length));
            qp.post_send(&[write]).unwrap();
        };
        let written = || {
            let start = Instant::now();
            loop {
                if let Some(wc) = cq.poll_one() {
                    break wc.result.unwrap();
                }
                let counters = context.link_counters();
                assert!(start.elapsed() < TIMEOUT, "{counters:?}");
            }
        };
        write(1 << 16);
        written();
        for _ in 0..3 {
            say_too_large(addresses[0], addresses[1]);
            write(1 << 16);
            written();
        }
        let sent = context.link_counters();
        assert_eq!((sent.send_errors, sent.shared_runs), (0, 0), "{sent:?}");

        let (before, largest) = (fragmented(), context.active_mtu().bytes() as usize);
        ip(&format!("link set v0 mtu {smaller}"));
        write(largest);
        eventually("the system refuses it", || context.link_counters().send_errors > 0);
        let refused = context.link_counters().last_send_error.unwrap();
        assert!(refused.contains("Message too long"), "{refused}");
        ip(&format!("link set v0 mtu {mtu}"));
        written();
        assert_eq!(fragmented(), before);
    }
}

/// Another process has a new address's name and is silent: the device waits 1 s, its program does
/// not.
#[test]
fn no_call_waits_while_an_address_is_taken() {
    if !inside("interface::no_call_waits_while_an_address_is_taken") {
        return;
    }
    cable();
    ip("addr add 10.9.0.1/32 dev v0");
    let context = Device::named("roce_v0").unwrap().open(OpenOptions::default()).unwrap();
    let flags = SocketFlags::CLOEXEC;
    let silent = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&silent, &SocketAddrUnix::new_abstract_name(b"roce 4791 10.9.0.2").unwrap()).unwrap();
    listen(&silent, 8).unwrap();
    ip("addr add 10.9.0.2/32 dev v0");
    let asked = accept_with(&silent, flags).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        let call = Instant::now();
        let _ = context.query_port();
        assert!(call.elapsed() < Duration::from_millis(300), "{:?}", call.elapsed());
        works_over(&context, 0);
    }
    assert_eq!(gids(&context), ["::ffff:10.9.0.1"; 2]);
    drop((asked, silent));
    expect(&context, AsyncEvent::GidChange);
    works_over(&context, 2);
}

#[test]
fn devices_share_an_address_that_comes() {
    if !inside("interface::devices_share_an_address_that_comes") {
        return;
    }
    cable();
    ip("addr add 10.9.0.1/32 dev v0");
    let open = || Device::named("roce_v0").unwrap().open(OpenOptions::default()).unwrap();
    let contexts = [open(), open()];
    ip("addr add 10.9.0.2/32 dev v0");
    for context in &contexts {
        expect(context, AsyncEvent::GidChange);
        assert_eq!(gids(context), ["::ffff:10.9.0.1", "::ffff:10.9.0.1", "::ffff:10.9.0.2"]);
        works_over(context, 2);
    }
    ip("addr del 10.9.0.1/32 dev v0");
    contexts.iter().for_each(|context| expect(context, AsyncEvent::GidChange));
    work_together(&contexts, 2);
}

struct Holder(std::process::Child);

impl Holder {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn stop(&self) {
        self.signal(Signal::STOP);
        // Its threads may run on for a moment.
        let stopped = waitpid(Some(Pid::from_child(&self.0)), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.unwrap().1.stopped());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Upper six bits of a device's numbers.
fn partition(context: &Context) -> u32 {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(1, None).unwrap();
    pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap().qpn().get() >> 18
}

/// A stopped process has an address of an interface. Others open the rest, and get it when the
/// process continues or ends.
#[test]
fn a_stopped_process_keeps_no_other_address() {
    const TEST: &str = "interface::a_stopped_process_keeps_no_other_address";
    const HOLDER: &str = "ROCE_TEST_HOLDER";
    if let Ok(device) = env::var(HOLDER) {
        let context = Device::named(&device).unwrap().open(OpenOptions::default()).unwrap();
        println!("\nopen {}", partition(&context));
        std::io::stdin().lines().next(); // until the test ends
        return;
    }
    if !inside(TEST) {
        return;
    }
    cable();
    ip("addr add 10.9.0.1/32 dev v0");
    ip("addr add fd00::1/128 dev v0 nodad");
    for goes_on in [true, false] {
        let mut holder = Holder(
            Command::new(env::current_exe().unwrap())
                .args(["--exact", TEST, "--nocapture"])
                .env(HOLDER, "udp:10.9.0.1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let held: u32 = lines.find_map(|line| line.strip_prefix("open ")?.parse().ok()).unwrap();
        holder.stop();

        let alone = Device::named("udp:10.9.0.1").unwrap().open(OpenOptions::default());
        let said = alone.unwrap_err().to_string();
        let expected =
            format!("process {} has port 4791 on 10.9.0.1 and is stopped", holder.0.id());
        assert!(said.contains(&expected) && said.lines().count() == 1, "{said}");

        let start = Instant::now();
        let open = || Device::named("roce_v0").unwrap().open(OpenOptions::default()).unwrap();
        let mut context = open();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        // Numbers are random, and no device gets an address where another device has the same
        // partition.
        while partition(&context) == held {
            context = open();
        }
        assert_eq!(gids(&context), ["fd00::1"]);
        works_over(&context, 0);
        // polled meanwhile without blocking
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!((gids(&context), context.poll_async_event()), (vec!["fd00::1".into()], None));
        holder.signal(if goes_on { Signal::CONT } else { Signal::KILL });
        expect(&context, AsyncEvent::GidChange);
        assert_eq!(gids(&context), ["fd00::1", "::ffff:10.9.0.1"]);
        works_over(&context, 1);
    }
}

/// At 2 Mbit/s the socket is full for seconds. The rest is queued, not lost.
#[test]
fn no_call_waits_for_a_slow_network() {
    if !inside("interface::no_call_waits_for_a_slow_network") {
        return;
    }
    ip("link set lo up");
    let shaped = ["qdisc", "add", "dev", "lo", "root", "tbf"];
    let limits = ["rate", "2mbit", "burst", "128kb", "limit", "16mb"];
    let status = Command::new("tc").args(shaped).args(limits).status().unwrap();
    assert!(status.success());
    let contexts = [1, 2].map(|last| {
        let options = OpenOptions { sockets_only: true, ..OpenOptions::default() };
        Device::at(IpAddr::from([127, 0, 1, last])).unwrap().open(options).unwrap()
    });
    // UC has no window: more than any socket holds.
    let connections: Vec<_> = (0..32)
        .map(|_| {
            contexts.each_ref().map(|context| {
                let pd = context.alloc_pd().unwrap();
                let cq = context.create_cq(16, None).unwrap();
                let qp = pd.create_qp(&QpInitAttr::new(QpType::Uc, &cq)).unwrap();
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                (cq, qp, pd.allocate(1 << 20, access).unwrap())
            })
        })
        .collect();
    let context = &contexts[0];
    let mut calls = Vec::new();
    let start = Instant::now();
    for [(_, qp, memory), (_, peer_qp, target)] in &connections {
        let call = Instant::now();
        let peer = peer_qp.endpoint(0).unwrap();
        qp.to_init(Init::default()).unwrap();
        qp.to_rtr(Rtr::Uc(PeerAttr {
            dest_qpn: peer.qpn,
            path_mtu: Mtu::B4096,
            rq_psn: peer.psn,
            av: AddressVector::new(peer.gid, 0),
        }))
        .unwrap();
        qp.to_rts(Rts::Uc(Psn::new(0))).unwrap();
        qp.post_send(&[SendWr::write(1, target.remote(0), memory.sge_all())]).unwrap();
        calls.push(call.elapsed());
    }
    while start.elapsed() < Duration::from_secs(2) {
        let call = Instant::now();
        let _ = context.query_port();
        let _ = connections[0][0].0.poll_one();
        calls.push(call.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    let counters = context.link_counters();
    assert!(counters.full > 0 && counters.send_errors == 0, "{counters:?}");
    // Two may have waited for the processor.
    calls.sort_unstable();
    let longest = &calls[calls.len() - 3..];
    assert!(longest[0] < Duration::from_millis(200), "calls took {longest:?}");
    let start = Instant::now();
    drop((connections, contexts));
    assert!(start.elapsed() < Duration::from_secs(1), "closing took {:?}", start.elapsed());
}
