//! UDP sockets, packet sockets and AF_XDP between two network namespaces.

use std::{error::Error, process::Command, time::Duration};

use super::{
    Scale,
    figures::{Kind, Table},
    ours::{ROCE, perf_between},
};

/// Outweighs the start.
const TIME: Duration = Duration::from_millis(400);
const LINKS: [&str; 3] = ["udp", "raw", "xdp"];
const MTUS: [usize; 2] = [1_500, 9_000];
const BYTES: usize = 64 << 10;

/// Namespaces, removed on drop.
struct Wire([String; 2]);

impl Wire {
    fn new() -> Result<Self, Box<dyn Error>> {
        let name = |end| format!("roce-compare-{}-{end}", std::process::id());
        let wire = Self([name("a"), name("b")]);
        let [a, b] = &wire.0;
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add v0 netns {a} type veth peer name v0 netns {b}"),
            format!("-n {a} address add 10.90.0.1/24 dev v0"),
            format!("-n {b} address add 10.90.0.2/24 dev v0"),
            format!("-n {a} link set v0 up"),
            format!("-n {b} link set v0 up"),
        ] {
            ip(&line)?;
        }
        Ok(wire)
    }

    fn set_mtu(&self, mtu: usize) -> Result<(), Box<dyn Error>> {
        self.0.iter().try_for_each(|end| ip(&format!("-n {end} link set v0 mtu {mtu}")))
    }

    fn perf(&self, link: &str, words: &str, figure: &str) -> Result<f64, Box<dyn Error>> {
        let device = |host: u32| match link {
            "udp" => format!("udp:10.90.0.{host}"),
            _ => format!("{link}:v0,ip=10.90.0.{}/24", host + 10),
        };
        let programs = self.0.each_ref().map(|end| format!("ip netns exec {end} {ROCE}"));
        let words = [1, 2].map(|host| format!("{words} -d {}", device(host)));
        let [programs, words] = [&programs, &words].map(|two| two.each_ref().map(String::as_str));
        perf_between(programs, words, "10.90.0.1", TIME, figure)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for end in &self.0 {
            let _ = ip(&format!("netns delete {end}"));
        }
    }
}

fn ip(line: &str) -> Result<(), Box<dyn Error>> {
    let status = Command::new("ip").args(line.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {line}: this needs root").into()) }
}

pub(crate) fn run(scale: &Scale) -> Result<(), Box<dyn Error>> {
    let wire = Wire::new()?;
    let mut tables = [
        ("round trip of 8 B, µs", Table::new(Kind::Latency, LINKS.to_vec(), &MTUS)),
        ("WRITE of 64 KiB, GB/s", Table::new(Kind::Throughput, LINKS.to_vec(), &MTUS)),
    ];
    for _ in 0..scale.rounds {
        for &mtu in &MTUS {
            wire.set_mtu(mtu)?;
            for link in LINKS {
                let half = wire.perf(link, "write --lat -s 8", "/results/0/usec/median")?;
                tables[0].1.add(link, mtu, half * 2.0);
                let bytes =
                    wire.perf(link, &format!("write -s {BYTES}"), "/results/0/bytes_per_second")?;
                tables[1].1.add(link, mtu, bytes / 1e9);
            }
        }
    }
    for (title, table) in &tables {
        println!("{title} (quartiles; of that over udp)");
        for &mtu in &MTUS {
            let sockets = table.cell("udp", mtu).ok_or("nothing was measured")?.median;
            for link in LINKS {
                let cell = table.cell(link, mtu).ok_or("nothing was measured")?;
                println!(
                    "  MTU {mtu}  {link}  {:.2} ({:.2} to {:.2}; {:.2})",
                    cell.median,
                    cell.low,
                    cell.high,
                    cell.median / sockets
                );
            }
        }
    }
    Ok(())
}
