use std::{
    io::Read,
    net::{IpAddr, SocketAddr, UdpSocket},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use roce::{
    AddressVector, AsyncEvent, BindError, Context, Device, Endpoint, Gid, GidType, Init, Mtu,
    OpenError, OpenOptions, PeerAttr, QpType, RecvWr, Rtr, Rts, SendFlags, SendWr, UdDestination,
    WcStatus,
};

use socket2::{Domain, Protocol, Socket, Type};

use super::{
    PATIENCE, Side, assert_nothing_dropped, connect,
    multicast::{Member, all_members_receive, own_group},
    noise,
    own_link::exchange,
    own_test,
};

const OWN: &str = "raw:veth0,ip=10.78.0.1/24";
const OWN_V6: &str = "raw:veth0,ip=fd78::1/64";

pub(super) fn open(spec: &str) -> Context {
    Device::named(spec).unwrap().open(OpenOptions::default()).unwrap()
}

pub(super) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

pub(super) fn mtu(bytes: u32) {
    for interface in ["veth0", "veth1"] {
        ip(&format!("link set {interface} mtu {bytes}"));
    }
}

/// The second interface has addresses. Skipped without namespaces.
fn in_namespace(name: &str, inside: impl FnOnce()) {
    in_new_namespace(&format!("raw::{name}"), &["--map-root-user", "--net", "--mount"], inside);
}

pub(super) fn in_new_namespace(path: &str, options: &[&str], inside: impl FnOnce()) {
    const INSIDE: &str = "ROCE_TEST_RAW";
    const READY: &str = "the namespace is ready";
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let setup = format!(
        "set -e
        mount -t sysfs none /sys # that of this namespace
        ip link set lo up
        ip link add veth0 type veth peer name veth1
        ip address add 10.78.0.2/24 dev veth1
        ip address add fd78::2/64 dev veth1 nodad
        ip link set veth0 up
        ip link set veth1 up
        # a wire that the kernel has not noticed yet loses what is sent
        for i in veth0 veth1; do
            until ip link show $i | grep -q 'state UP'; do sleep 0.01; done
        done
        echo {READY}
        exec \"$0\" --exact {} --nocapture",
        own_test::named(&format!("live::{path}"))
    );
    let mut command = Command::new("unshare");
    command
        .args(options)
        .args(["sh", "-c", &setup])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1");
    let output = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !out.contains(READY) {
        assert!(std::env::var_os("ROCE_NAMESPACES").is_none(), "no namespace can be made: {err}");
        eprintln!("no network namespace can be made here: left to CI");
        return;
    }
    assert!(output.status.success(), "{out}{err}");
}

/// Full size.
pub(super) fn echo(domain: Domain, address: IpAddr) {
    let v6 = domain == Domain::IPV6;
    let protocol = if v6 { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
    let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // type, code, checksum (the kernel's for IPv6), identifier, number
    let mut message = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend([0; 1400]);
    if !v6 {
        let sum = !(0x0800_u16 + 0x1234 + 1);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    socket.send_to(&message, &SocketAddr::new(address, 0).into()).unwrap();
    let mut buffer = [0; 2000];
    loop {
        let length = (&socket).read(&mut buffer).expect("no reply");
        let reply = if v6 { &buffer[..length] } else { &buffer[20..length] };
        if reply[0] == if v6 { 129 } else { 0 } {
            assert_eq!(reply[4..], message[4..]);
            return;
        }
    }
}

fn datagram(a: &Context, b: &Context) {
    let (from, to) = (Member::on(a), Member::on(b));
    let way =
        AddressVector { traffic_class: 0xB9, hop_limit: 3, ..AddressVector::new(b.gids()[0], 0) };
    let destination = UdDestination::new(way, to.qp.qpn(), Member::QKEY);
    let data = noise(1000, 5);
    from.memory.write_at(0, &data).unwrap();
    let receives: Vec<_> = (0..4)
        .map(|id| RecvWr::new(id, [to.memory.sge(id as usize * 4096..(id as usize + 1) * 4096)]))
        .collect();
    to.qp.post_recv(&receives).unwrap();
    let send = SendWr::send_to(1, destination, from.memory.sge(0..1000));
    from.qp.post_send(&vec![send.with_flags(SendFlags::empty()); 4]).unwrap();
    assert_eq!(to.receive(4), vec![data; 4]);
}

pub(super) fn all_between(first: &str, second: &str, mtu: Mtu) {
    let contexts = [first, second].map(open);
    let [a, b] = &contexts;
    assert_eq!((a.active_mtu(), b.active_mtu()), (mtu, mtu));
    let sides = contexts.clone().map(Side::on);
    connect(&sides[0], &sides[1]);
    exchange(&sides[0], &sides[1]);
    exchange(&sides[1], &sides[0]);
    let unreliable = contexts.clone().map(|context| Side::of(context, QpType::Uc));
    for (own, peer) in [(0, 1), (1, 0)] {
        let (qp, peer) = (&unreliable[own].qp, unreliable[peer].qp.endpoint(0).unwrap());
        qp.to_init(Init::default()).unwrap();
        qp.to_rtr(Rtr::Uc(PeerAttr {
            dest_qpn: peer.qpn,
            path_mtu: mtu,
            rq_psn: peer.psn,
            av: AddressVector::new(peer.gid, 0),
        }))
        .unwrap();
        qp.to_rts(Rts::Uc(qp.endpoint(0).unwrap().psn)).unwrap();
    }
    unreliable[0].memory.write_at(0, b"unreliable").unwrap();
    unreliable[1].qp.post_recv(&[RecvWr::new(1, [unreliable[1].memory.sge_all()])]).unwrap();
    unreliable[0].qp.post_send(&[SendWr::send(2, unreliable[0].memory.sge(0..10))]).unwrap();
    assert_eq!(unreliable[1].next().result.unwrap().byte_len, 10, "{first} to {second}");
    datagram(a, b);
    datagram(b, a);
    for context in &contexts {
        assert_nothing_dropped(context);
        let counters = context.link_counters();
        assert_eq!((counters.shared_runs, counters.send_errors), (0, 0), "{counters:?}");
    }
}

#[test]
fn own_addresses_beside_sockets() {
    in_namespace("own_addresses_beside_sockets", || {
        all_between(OWN, "udp:10.78.0.2", Mtu::B1024);
        all_between(OWN_V6, "udp:fd78::2", Mtu::B1024);
        mtu(9000);
        all_between(OWN, "udp:10.78.0.2", Mtu::B4096);
        all_between(OWN_V6, "udp:fd78::2", Mtu::B4096);
    });
}

/// With `roce=v1`, GID 0 is RoCE v1 and GID 1 RoCEv2.
#[test]
fn roce_v1_between_two_devices() {
    in_namespace("roce_v1_between_two_devices", || {
        let with = |spec: &str| format!("{spec},roce=v1");
        all_between(&with(OWN), &with("raw:veth1,ip=10.78.0.3/24"), Mtu::B1024);
        all_between(&with(OWN_V6), &with("raw:veth1,ip=fd78::3/64"), Mtu::B1024);
        all_between(&with(OWN), &with("raw:veth1"), Mtu::B1024);
        let [a, b] =
            ["raw:veth0,ip=10.79.0.1/24,vlan=100", "raw:veth1,ip=10.79.0.2/24,vlan=100"].map(with);
        all_between(&a, &b, Mtu::B1024);
        mtu(9000);
        all_between(&with(OWN), &with("raw:veth1,ip=10.78.0.3/24"), Mtu::B4096);
        let context = open(&with(OWN));
        let types: Vec<_> = (0..4).map(|index| context.gid_type(index)).collect();
        assert_eq!(types, [GidType::RoceV1, GidType::RoceV2, GidType::RoceV1, GidType::RoceV2]);
    });
}

#[test]
fn own_addresses_on_both_sides() {
    in_namespace("own_addresses_on_both_sides", || {
        all_between(OWN, "raw:veth1,ip=10.78.0.3/24", Mtu::B1024);
        all_between(OWN_V6, "raw:veth1,ip=fd78::3/64", Mtu::B1024);
        let tagged = "raw:veth0,ip=10.79.0.1/24,vlan=100,prio=3";
        all_between(tagged, "raw:veth1,ip=10.79.0.2/24,vlan=100", Mtu::B1024);
        // this device and the kernel's interface in one VLAN
        let add = ["link", "add", "link", "veth1", "name", "tagged", "type", "vlan", "id", "100"];
        if Command::new("ip").args(add).status().unwrap().success() {
            ip("address add 10.79.0.3/24 dev tagged");
            ip("link set tagged up");
            all_between(tagged, "udp:10.79.0.3", Mtu::B1024);
            all_between(tagged, "raw:tagged", Mtu::B1024);
        } else {
            eprintln!("this kernel has no VLAN interfaces: left to CI");
        }
        // two devices on an interface, and a device with itself
        all_between(OWN, "raw:veth0,ip=10.78.0.4/24", Mtu::B1024);
        let context = open(OWN);
        let sides = [context.clone(), context].map(Side::on);
        connect(&sides[0], &sides[1]);
        exchange(&sides[0], &sides[1]);
    });
}

#[test]
fn borrowed_addresses() {
    in_namespace("borrowed_addresses", || {
        ip("address add 10.78.1.1/24 dev veth0"); // another network: else it is local
        all_between(OWN, "raw:veth1", Mtu::B1024);
        let context = open("raw:veth1");
        let taken = Device::named("udp:10.78.0.2").unwrap().open(OpenOptions::default());
        assert!(matches!(taken, Err(OpenError::Bind(BindError::Taken(_)))), "{taken:?}");
        drop(context);
        let udp = open("udp:10.78.0.2");
        let taken = Device::named("raw:veth1").unwrap().open(OpenOptions::default());
        assert!(matches!(taken, Err(OpenError::Bind(BindError::Taken(_)))), "{taken:?}");
        drop(udp);
    });
}

/// Like a killed process's address, whose end its successor cannot see.
#[test]
fn a_borrowed_address_that_is_given_up_is_waited_for() {
    in_namespace("a_borrowed_address_that_is_given_up_is_waited_for", || {
        let other = UdpSocket::bind("10.78.0.2:4791").unwrap();
        let going = thread::spawn(|| {
            thread::sleep(Duration::from_millis(100));
            drop(other);
        });
        drop(open("raw:veth1"));
        going.join().unwrap();
    });
}

#[test]
fn addresses_of_others_are_refused_and_own_ones_get_replies() {
    in_namespace("addresses_of_others_are_refused_and_own_ones_get_replies", || {
        for address in ["10.78.0.2/24", "fd78::2/64"] {
            let device = Device::named(&format!("raw:veth0,ip={address}")).unwrap();
            let refused = device.open(OpenOptions::default());
            assert!(
                matches!(refused, Err(OpenError::Bind(BindError::Duplicate { .. }))),
                "{refused:?}"
            );
        }
        let context = open(&format!("{OWN},ip=fd78::1/64"));
        for (domain, address) in [(Domain::IPV4, "10.78.0.1"), (Domain::IPV6, "fd78::1")] {
            echo(domain, address.parse().unwrap());
        }
        // address resolution and echo, for each family
        assert_eq!(context.link_counters().frames.answered, 4);
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
                    _ => thread::sleep(Duration::from_millis(1)),
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
            assert!(!contexts[0].query_port().active);
            ip("link set veth0 up");
            next(AsyncEvent::PortActive);
        }
        ip("link delete veth0");
        next(AsyncEvent::PortError);
        assert_eq!(contexts[0].link_counters().receive_errors, 0);
    });
}

pub(super) fn members(devices: &[&str]) {
    let contexts: Vec<_> = devices.iter().map(|spec| open(spec)).collect();
    all_members_receive(&contexts, own_group(devices[0].contains("ip=fd78:")));
}

#[test]
fn members_of_a_group_receive_what_is_sent_to_it() {
    in_namespace("members_of_a_group_receive_what_is_sent_to_it", || {
        // sockets, a borrowed address and own addresses on both ends
        let lists: [&[&str]; 4] = [
            &[OWN, "udp:10.78.0.2", "raw:veth1,ip=10.78.0.3/24", "raw:veth0,ip=10.78.0.4/24"],
            &[OWN_V6, "udp:fd78::2", "raw:veth1,ip=fd78::3/64", "raw:veth0,ip=fd78::4/64"],
            &[OWN, "raw:veth1"],
            &[OWN_V6, "raw:veth1"],
        ];
        for list in lists {
            members(list);
        }
        let contexts = ["raw:veth1", OWN].map(open);
        assert!(contexts[0].gids()[0].to_ip().is_ipv4());
        all_members_receive(&contexts, own_group(false));
    });
}

#[test]
fn a_switch_is_told_of_members() {
    in_namespace("a_switch_is_told_of_members", || {
        ip("link add br0 type bridge mcast_querier 1 mcast_query_response_interval 100");
        ip("link set br0 up");
        for port in ["left", "right"] {
            ip(&format!("link add {port} type veth peer name {port}-end"));
            ip(&format!("link set {port}-end master br0 up"));
            ip(&format!("link set {port} up"));
        }
        let until = |told: bool, group: IpAddr| {
            let start = Instant::now();
            loop {
                // not in every user's PATH
                let show = "PATH=$PATH:/usr/sbin:/sbin exec bridge mdb show dev br0";
                let list = Command::new("sh").args(["-c", show]).output();
                let list = String::from_utf8(list.unwrap().stdout).unwrap();
                let wanted = format!("port left-end grp {group} ");
                if list.contains(&wanted) == told {
                    return;
                }
                assert!(start.elapsed() < PATIENCE, "{wanted}: not {told} in\n{list}");
                thread::sleep(Duration::from_millis(20));
            }
        };
        for (member, sender) in [
            ("raw:left,ip=10.79.0.1/24", "raw:right,ip=10.79.0.2/24"),
            ("raw:left,ip=fe80::a:1/64,ip=fd79::1/64", "raw:right,ip=fd79::2/64"),
        ] {
            let contexts = [member, sender].map(open);
            let [a, b] = &contexts;
            let group = own_group(sender.contains("fd79"));
            let (to, from) = (Member::of(a, group), Member::on(b));
            until(true, group);
            from.send(group, 3, &noise(1000, 9));
            assert_eq!(to.receive(3).len(), 3);
            drop(to);
            until(false, group);
            assert_nothing_dropped(a);
        }
    });
}

#[test]
fn a_pause_is_obeyed() {
    in_namespace("a_pause_is_obeyed", || {
        let sides =
            ["raw:veth0,ip=10.79.0.1/24,vlan=100,prio=3", "raw:veth1,ip=10.79.0.2/24,vlan=100"]
                .map(open)
                .map(Side::on);
        connect(&sides[0], &sides[1]);
        exchange(&sides[0], &sides[1]);
        let interfaces = pnet_datalink::interfaces();
        let veth1 = interfaces.iter().find(|interface| interface.name == "veth1").unwrap();
        let Ok(pnet_datalink::Channel::Ethernet(mut wire, _)) =
            pnet_datalink::channel(veth1, pnet_datalink::Config::default())
        else {
            panic!("no packet socket");
        };
        // longest pause of priority 3: 65,535 × 51.2 ns at veth's 10 Gbit/s
        let mut pause = vec![0x01, 0x80, 0xC2, 0, 0, 0x01, 2, 0, 0, 0, 0, 9, 0x88, 0x08];
        pause.extend([1, 1, 0, 1 << 3, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]);
        pause.resize(60, 0);
        let frames = || sides[0].context.link_counters().frames;
        let begun = Instant::now();
        // A busy machine may notice the pause too late.
        for count in 1.. {
            assert!(begun.elapsed() < PATIENCE, "{:?}", frames());
            let start = Instant::now();
            wire.send_to(&pause, None).unwrap().unwrap();
            while frames().pauses < count {
                assert!(begun.elapsed() < PATIENCE, "{:?}", frames());
                thread::yield_now();
            }
            exchange(&sides[0], &sides[1]);
            if frames().paused > 0 {
                assert!(start.elapsed() >= Duration::from_micros(3_355), "{:?}", start.elapsed());
                break;
            }
        }
        assert_nothing_dropped(&sides[1].context);
    });
}

/// Like a silent peer. Resolution fails after three requests, 1 s apart.
#[test]
fn a_neighbour_that_is_not_there() {
    in_namespace("a_neighbour_that_is_not_there", || {
        for (own, nobody) in [(OWN, "10.78.0.77"), (OWN_V6, "fd78::77")] {
            let side = Side::on(open(own));
            let gid = Gid::from(nobody.parse::<IpAddr>().unwrap());
            side.qp.connect_to(Endpoint { gid, ..side.qp.endpoint(0).unwrap() }).unwrap();
            let start = Instant::now();
            side.qp.post_send(&[SendWr::send(1, side.memory.sge(0..8))]).unwrap();
            let error = side.next().result.unwrap_err();
            assert_eq!(error.status, WcStatus::RetryExcErr, "{error:?}");
            let frames = || side.context.link_counters().frames;
            while frames().unanswered == 0 {
                assert!(start.elapsed() < PATIENCE, "{:?}", frames());
                thread::sleep(Duration::from_millis(20));
            }
            let taken = start.elapsed();
            assert!(taken >= Duration::from_secs(3), "{taken:?}");
            assert!(frames().waiting_lost > 0 && frames().resolved == 0, "{:?}", frames());
        }
    });
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    in_namespace("a_neighbour_that_moves_is_followed", || {
        for (own, peer) in [(OWN, "ip=10.78.0.3/24"), (OWN_V6, "ip=fd78::3/64")] {
            let context = open(own);
            for (moved, last) in (0..3).zip([0xA, 0xB, 0xC]) {
                let sides = [
                    context.clone(),
                    open(&format!("raw:veth1,{peer},mac=02:00:00:00:00:0{last:x}")),
                ]
                .map(Side::on);
                connect(&sides[0], &sides[1]);
                exchange(&sides[0], &sides[1]);
                let counters = context.link_counters().frames;
                assert_eq!((counters.resolved, counters.moved), (1, moved), "{counters:?}");
            }
        }
    });
}
