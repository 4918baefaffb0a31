//! Addresses from dnsmasq, in a network namespace.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use roce::{AsyncEvent, BindError, Context, Device, LeasedAddress, Mtu, OpenError, OpenOptions};

use super::{
    PATIENCE, Side, connect,
    own_link::exchange,
    raw::{all_between, in_new_namespace, ip, open},
};

const LEASED: &str = "raw:veth0,mac=02:00:00:00:00:09,ip=dhcp";

fn dnsmasq() -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("dnsmasq");
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

fn in_namespace(name: &str, options: &[&str], inside: impl FnOnce()) {
    if dnsmasq().arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("ROCE_NAMESPACES").is_none(), "dnsmasq is not installed");
        eprintln!("dnsmasq is not installed: left to CI");
        return;
    }
    in_new_namespace(&format!("leased::{name}"), options, inside);
}

const USER: [&str; 3] = ["--map-root-user", "--net", "--mount"];

/// Addresses from this address on, renewed after 5 s.
struct Server(Child);

impl Server {
    fn start(interface: &str, first: [u8; 4]) -> Self {
        let [a, b, c, d] = first;
        let child = dnsmasq()
            .args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root"])
            .args(["--group=root", "--pid-file=", "--leasefile-ro", "--dhcp-authoritative"])
            .args(["--no-ping", "--bind-interfaces", &format!("--interface={interface}")])
            .arg(format!("--dhcp-range={a}.{b}.{c}.{d},{a}.{b}.{c}.{},2m", d + 2))
            .args(["--dhcp-option=option:T1,5", "--dhcp-option=option:T2,8"])
            .args(["--dhcp-option=option:router,10.78.0.2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn v4(context: &Context) -> Option<Ipv4Addr> {
    context.gids().into_iter().find_map(|gid| match gid.to_ip() {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    })
}

fn lease(context: &Context) -> LeasedAddress {
    context.link_counters().lease.expect("a lease")
}

fn changed(context: &Context) -> Option<Ipv4Addr> {
    let start = Instant::now();
    while context.poll_async_event() != Some(AsyncEvent::GidChange) {
        assert!(start.elapsed() < PATIENCE, "no event");
        std::thread::sleep(Duration::from_millis(10));
    }
    v4(context)
}

fn conversations(scheme: &str) {
    let _server = Server::start("veth1", [10, 78, 0, 50]);
    let leased = LEASED.replace("raw", scheme);
    all_between(&leased, "udp:10.78.0.2", Mtu::B1024);
    let context = open(&leased);
    let (own, lease) = (v4(&context).unwrap(), lease(&context));
    assert!(matches!(own.octets(), [10, 78, 0, 50..=52]), "{own}");
    assert_eq!((lease.address, lease.length), (IpAddr::from(own), 24));
    assert_eq!(lease.server, IpAddr::from([10, 78, 0, 2]));
    assert_eq!(context.link_counters().frames.dhcp_bad, 0);
}

#[test]
fn what_is_leased_is_spoken_from() {
    in_namespace("what_is_leased_is_spoken_from", &USER, || {
        conversations("raw");
        // another MAC, another address
        let _server = Server::start("veth1", [10, 78, 0, 50]);
        let contexts = [LEASED.into(), LEASED.replace(":09", ":0a")].map(|spec| open(&spec));
        assert!(v4(&contexts[0]) != v4(&contexts[1]));
        let sides = contexts.map(Side::on);
        connect(&sides[0], &sides[1]);
        exchange(&sides[0], &sides[1]);
    });
}

#[test]
fn what_is_leased_is_spoken_from_past_the_network_stack() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may put BPF programs at interfaces: left to CI");
        return;
    }
    let name = "what_is_leased_is_spoken_from_past_the_network_stack";
    in_namespace(name, &["--net", "--mount"], || conversations("xdp"));
}

#[test]
fn on_a_vlan() {
    in_namespace("on_a_vlan", &USER, || {
        let add = ["link", "add", "link", "veth1", "name", "tagged", "type", "vlan", "id", "100"];
        if !Command::new("ip").args(add).status().unwrap().success() {
            eprintln!("this kernel has no VLAN interfaces: left to CI");
            return;
        }
        ip("address add 10.79.0.2/24 dev tagged");
        ip("link set tagged up");
        let _server = Server::start("tagged", [10, 79, 0, 50]);
        all_between(&format!("{LEASED},vlan=100"), "udp:10.79.0.2", Mtu::B1024);
    });
}

#[test]
fn a_lease_is_renewed_and_an_address_that_is_refused_is_another_later() {
    let name = "a_lease_is_renewed_and_an_address_that_is_refused_is_another_later";
    in_namespace(name, &USER, || {
        let server = Server::start("veth1", [10, 78, 0, 50]);
        let context = open(LEASED);
        let (first, granted) = (v4(&context).unwrap(), lease(&context));
        let start = Instant::now();
        while lease(&context).until == granted.until {
            assert!(start.elapsed() < PATIENCE, "it is not renewed");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((v4(&context), context.poll_async_event()), (Some(first), None));
        // other addresses
        drop(server);
        let _server = Server::start("veth1", [10, 78, 0, 60]);
        assert_eq!(changed(&context), None);
        let second = changed(&context).unwrap();
        assert!(second.octets()[3] >= 60, "{second}");
        let counters = context.link_counters();
        assert_eq!((counters.frames.dhcp_refused, counters.frames.dhcp_lost), (1, 1));
        let sides = [context, open("udp:10.78.0.2")].map(Side::on);
        connect(&sides[0], &sides[1]);
        exchange(&sides[1], &sides[0]);
    });
}

#[test]
fn without_a_server_opening_ends_with_one_line() {
    in_namespace("without_a_server_opening_ends_with_one_line", &USER, || {
        let start = Instant::now();
        let error = Device::named(LEASED).unwrap().open(OpenOptions::default()).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert!(matches!(error, OpenError::Bind(BindError::NoLease { .. })), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("no DHCP lease on veth0 within 10 s: no DHCP server"));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(fs::read_to_string("/proc/net/packet").unwrap().lines().count() == 1);
    });
}
