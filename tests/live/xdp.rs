//! AF_XDP on a veth pair; the kernel loads programs only for the host's root.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use roce::{AsyncEvent, BindError, Device, Mtu, OpenError, OpenOptions, Progress, XdpRefusal};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    PATIENCE, Side, assert_nothing_dropped, connect,
    own_link::exchange,
    own_test,
    raw::{all_between, echo, in_new_namespace, ip, members, mtu, open},
};

const OWN: &str = "xdp:veth0,ip=10.78.0.1/24";
const OWN_V6: &str = "xdp:veth0,ip=fd78::1/64";

/// Without CAP_IPC_LOCK, the locked memory of a user's processes is counted together.
static LOCKED_MEMORY: Mutex<()> = Mutex::new(());

/// With the host root's rights.
fn in_namespace(name: &str, inside: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may put BPF programs at interfaces: left to CI");
        return;
    }
    in_new_namespace(&format!("xdp::{name}"), &["--net", "--mount"], || {
        // a container's root
        let probe = Device::named(OWN).unwrap().open(OpenOptions::default());
        if let Err(OpenError::Bind(BindError::Xdp {
            why: XdpRefusal::UserNamespace | XdpRefusal::Capability(_),
            ..
        })) = &probe
        {
            eprintln!("{}: left to CI", probe.unwrap_err());
            return;
        }
        drop(probe);
        inside();
    });
}

fn refusal(spec: &str) -> String {
    let error = Device::named(spec).and_then(|device| device.open(OpenOptions::default()));
    let text = error.expect_err(spec).to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn shown(interface: &str) -> String {
    let output = Command::new("ip").args(["-d", "link", "show", interface]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn has_program(interface: &str) -> bool {
    shown(interface).contains("prog/xdp")
}

#[test]
fn own_addresses_beside_sockets() {
    in_namespace("own_addresses_beside_sockets", || {
        for mode in ["", ",mode=copy", ",mode=generic"] {
            all_between(&format!("{OWN}{mode}"), "udp:10.78.0.2", Mtu::B1024);
            all_between(&format!("{OWN_V6}{mode}"), "udp:fd78::2", Mtu::B1024);
        }
        assert!(!has_program("veth0"));
        // multi-buffer frames
        mtu(9000);
        for mode in ["", ",mode=generic"] {
            all_between(&format!("{OWN}{mode}"), "udp:10.78.0.2", Mtu::B4096);
            all_between(&format!("{OWN_V6}{mode}"), "udp:fd78::2", Mtu::B4096);
        }
    });
}

#[test]
fn own_addresses_on_both_sides() {
    in_namespace("own_addresses_on_both_sides", || {
        all_between(OWN, "xdp:veth1,ip=10.78.0.3/24", Mtu::B1024);
        all_between(OWN_V6, "raw:veth1,ip=fd78::3/64", Mtu::B1024);
        all_between("raw:veth0,ip=10.78.0.1/24", "xdp:veth1,ip=10.78.0.3/24", Mtu::B1024);
        all_between(&format!("{OWN},busy=10"), "xdp:veth1,ip=10.78.0.3/24", Mtu::B1024);
        let tagged = "xdp:veth0,ip=10.79.0.1/24,vlan=100,prio=3";
        all_between(tagged, "xdp:veth1,ip=10.79.0.2/24,vlan=100", Mtu::B1024);
        all_between(tagged, "raw:veth1,ip=10.79.0.2/24,vlan=100", Mtu::B1024);
        let v1 = [
            "xdp:veth0,ip=10.78.0.1/24,roce=v1",
            "xdp:veth1,ip=fd78::3/64,ip=10.78.0.3/24,roce=v1",
        ];
        all_between(v1[0], "raw:veth1,ip=10.78.0.3/24,roce=v1", Mtu::B1024);
        mtu(9000);
        all_between(OWN, "xdp:veth1,ip=10.78.0.3/24", Mtu::B4096);
        all_between(tagged, "xdp:veth1,ip=10.79.0.2/24,vlan=100", Mtu::B4096);
        // a device with itself
        let context = open(OWN);
        let sides = [context.clone(), context].map(Side::on);
        connect(&sides[0], &sides[1]);
        exchange(&sides[0], &sides[1]);
    });
}

/// The ring, not the packet socket beside it: the kernel's stack sees none.
#[test]
fn roce_bypasses_the_network_stack() {
    in_namespace("roce_bypasses_the_network_stack", || {
        let sides = [OWN, "xdp:veth1,ip=10.78.0.3/24"].map(open).map(Side::on);
        connect(&sides[0], &sides[1]);
        // all interfaces and protocols (ETH_P_ALL)
        let all = Protocol::from(i32::from(3_u16.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap();
        socket.set_nonblocking(true).unwrap();
        exchange(&sides[0], &sides[1]);
        exchange(&sides[1], &sides[0]);
        let mut frame = [0; 2048];
        while let Ok(length) = (&socket).read(&mut frame) {
            let is_udp = frame[12..14] == [8, 0] && frame[23] == 17;
            assert!(!is_udp, "{:02x?}", &frame[..length]);
        }
        for side in &sides {
            assert_nothing_dropped(&side.context);
        }
    });
}

#[test]
fn borrowed_addresses() {
    in_namespace("borrowed_addresses", || {
        ip("address add 10.78.1.1/24 dev veth0"); // another network: else it is local
        all_between(OWN, "xdp:veth1", Mtu::B1024);
        all_between("raw:veth0,ip=10.78.0.1/24", "xdp:veth1,mode=generic", Mtu::B1024);
        let _context = open("xdp:veth1");
        let taken = Device::named("udp:10.78.0.2").unwrap().open(OpenOptions::default());
        assert!(matches!(taken, Err(OpenError::Bind(BindError::Taken(_)))), "{taken:?}");
    });
}

#[test]
fn own_addresses_get_replies_and_others_are_the_kernels() {
    in_namespace("own_addresses_get_replies_and_others_are_the_kernels", || {
        let text = refusal("xdp:veth0,ip=10.78.0.2/24");
        assert!(text.contains("is in use: the host"), "{text}");
        let context = open(&format!("{OWN},ip=fd78::1/64"));
        for (domain, address) in [(Domain::IPV4, "10.78.0.1"), (Domain::IPV6, "fd78::1")] {
            echo(domain, address.parse().unwrap());
        }
        assert_eq!(context.link_counters().frames.answered, 4);
    });
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    in_namespace("what_cannot_be_is_said_in_one_line", || {
        for (spec, wanted) in [
            ("xdp:nothing", "the interface nothing does not exist"),
            ("xdp:lo", "the interface lo is not an Ethernet interface"),
            ("xdp:veth0", "the interface veth0 has no address to borrow"),
            (
                "xdp:veth0,ip=10.78.0.1/24,queue=9",
                "xdp:veth0 has no queue 9: it has 1, starting at queue=0",
            ),
            ("xdp:veth0,ip=10.78.0.1/24,mode=zero-copy", "does not support mode=zero-copy"),
            ("xdp:veth0,ip=10.78.0.1/24,mode=fast", "\"mode=fast\" is wrong: write mode=zero-copy"),
        ] {
            // includes link-local addresses
            if spec == "xdp:veth0" {
                ip("address flush dev veth0");
            }
            let text = refusal(spec);
            assert!(text.contains(wanted), "{text}");
        }
        let context = open(OWN);
        assert!(has_program("veth0"), "{}", shown("veth0"));
        let text = refusal("xdp:veth0,ip=10.78.0.9/24");
        assert!(text.contains("cannot use queue 0") && text.contains("xdp:veth0"), "{text}");
        drop(context);
        assert!(!has_program("veth0"), "{}", shown("veth0"));
        open(OWN);
    });
}

/// The kernel's verifier allows root more than these capabilities.
#[test]
fn three_capabilities_are_enough() {
    const INSIDE: &str = "ROCE_TEST_XDP_RIGHTS";
    if std::env::var_os(INSIDE).is_some() {
        for rest in ["", ",ip=fd78::1/64,vlan=100,roce=v1", ",mode=generic"] {
            open(&format!("{OWN}{rest}"));
        }
        return println!("all open");
    }
    let _counted = LOCKED_MEMORY.lock().unwrap();
    in_namespace("three_capabilities_are_enough", || {
        for bytes in [1500, 9000] {
            mtu(bytes);
            let limited = Command::new("setpriv")
                .args(["--bounding-set", "-all,+net_raw,+net_admin,+bpf", "--inh-caps", "-all"])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", own_test::named("live::xdp::three_capabilities_are_enough")])
                .arg("--nocapture")
                .env(INSIDE, "1")
                .output()
                .unwrap();
            let text = [limited.stdout, limited.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            assert!(limited.status.success() && text.contains("all open"), "{text}");
        }
    });
}

/// A user namespace's root may load no program.
#[test]
fn without_the_rights_of_the_host() {
    let _counted = LOCKED_MEMORY.lock().unwrap();
    let options = ["--map-root-user", "--net", "--mount"];
    in_new_namespace("xdp::without_the_rights_of_the_host", &options, || {
        let text = refusal(OWN);
        assert!(text.contains("of the host, not of a user namespace"), "{text}");
        open("raw:veth0,ip=10.78.0.1/24");
    });
}

#[test]
fn a_killed_process_leaves_nothing_at_the_interface() {
    const HOLDER: &str = "ROCE_TEST_XDP_HOLDER";
    if std::env::var_os(HOLDER).is_some() {
        let _context = open(OWN);
        println!("open");
        sleep(Duration::from_secs(600));
    }
    in_namespace("a_killed_process_leaves_nothing_at_the_interface", || {
        let name = own_test::named("live::xdp::a_killed_process_leaves_nothing_at_the_interface");
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(HOLDER, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("open")));
        assert!(has_program("veth0"));
        refusal(OWN);
        holder.kill().unwrap();
        holder.wait().unwrap();
        // the kernel closes descriptors shortly after the process has ended
        let start = Instant::now();
        while has_program("veth0") {
            assert!(start.elapsed() < PATIENCE, "{}", shown("veth0"));
            sleep(Duration::from_millis(1));
        }
        all_between(OWN, "udp:10.78.0.2", Mtu::B1024);
    });
}

#[test]
fn the_port_follows_its_interface() {
    in_namespace("the_port_follows_its_interface", || {
        let contexts = [OWN, "udp:10.78.0.2"].map(open);
        let next = |wanted| {
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                match contexts[0].poll_async_event() {
                    Some(event) if event == wanted => return,
                    _ => sleep(Duration::from_millis(1)),
                }
            }
            panic!("no {wanted:?}");
        };
        for _ in 0..2 {
            let sides = contexts.clone().map(Side::on);
            connect(&sides[0], &sides[1]);
            exchange(&sides[0], &sides[1]);
            drop(sides);
            ip("link set veth0 down");
            next(AsyncEvent::PortError);
            ip("link set veth0 up");
            next(AsyncEvent::PortActive);
        }
        ip("link delete veth0");
        next(AsyncEvent::PortError);
        assert_eq!(contexts[0].link_counters().receive_errors, 0);
    });
}

#[test]
fn members_of_a_group_receive_what_is_sent_to_it() {
    in_namespace("members_of_a_group_receive_what_is_sent_to_it", || {
        members(&[OWN, "udp:10.78.0.2", "raw:veth1,ip=10.78.0.3/24"]);
        members(&[OWN_V6, "xdp:veth1,ip=fd78::3/64"]);
        members(&[OWN, "xdp:veth1"]);
    });
}

/// The kernel holds 256 frames of a device that does not receive.
#[test]
fn what_finds_no_room_is_counted() {
    in_namespace("what_finds_no_room_is_counted", || {
        let options = OpenOptions {
            receive_buffer: Some(1),
            progress: Progress::Manual,
            ..OpenOptions::default()
        };
        let deaf = Device::named(OWN).unwrap().open(options).unwrap();
        // the part that the XDP program reads
        let mut frame = vec![0x02, 0x52, 10, 78, 0, 1, 2, 0, 0, 0, 0, 9, 0x08, 0x00];
        frame.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 78, 0, 9, 10, 78, 0, 1]);
        frame.extend([0xC0, 0, 0x12, 0xB7, 0, 26, 0, 0]);
        frame.resize(60, 0);
        let interfaces = pnet_datalink::interfaces();
        let veth1 = interfaces.iter().find(|interface| interface.name == "veth1").unwrap();
        let Ok(pnet_datalink::Channel::Ethernet(mut wire, _)) =
            pnet_datalink::channel(veth1, pnet_datalink::Config::default())
        else {
            panic!("no packet socket");
        };
        for _ in 0..600 {
            wire.send_to(&frame, None).unwrap().unwrap();
        }
        let start = Instant::now();
        let counters = || deaf.link_counters();
        while counters().frames.xdp_no_chunk < 344 {
            assert!(start.elapsed() < PATIENCE, "{:?}", counters());
            sleep(Duration::from_millis(1));
        }
        assert_eq!(counters().frames.xdp_no_chunk, 344);
        // includes the packet socket's
        assert!(counters().socket_drops >= 344, "{:?}", counters());
        assert_eq!((counters().frames.xdp_ring_full, counters().frames.xdp_invalid), (0, 0));
        // the memory is reused
        for _ in 0..16 {
            deaf.progress();
        }
        assert_eq!(counters().frames.bad_ip, 256); // wrong header checksum
    });
}
