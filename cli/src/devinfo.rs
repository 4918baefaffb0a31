//! `roce devinfo`: devices as `ibv_devinfo` shows them.

mod counters;

use roce::{Device, DeviceAttr, Limits, OpenOptions, PKey, devices, published_counters};
use serde_json::{Value, json};

use crate::{failure::Failure, output::outln};

/// List devices, or the counters of open ones.
///
/// Loopback and each network interface with an address have a device. udp:ADDRESS opens one
/// address. raw:INTERFACE or raw:INTERFACE,ip=ADDRESS/LENGTH (or ip=dhcp,mac=MAC) builds Ethernet
/// frames itself; xdp:INTERFACE… also bypasses the network stack. A GID is an address of the
/// device: an IPv4 address appears as ::ffff:a.b.c.d.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this device: a name from the list, udp:ADDRESS, raw:INTERFACE… or xdp:INTERFACE…
    #[arg(short = 'd', long, value_name = "DEV")]
    device: Option<String>,
    /// Show every attribute; with --counters also zero counters
    #[arg(short, long)]
    verbose: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Show the counters of all devices open now in programs of this user, with their meaning
    #[arg(long)]
    counters: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.counters {
        return counters::run(args.device.as_deref(), args.verbose, args.json);
    }
    let list = match &args.device {
        Some(spec) => vec![Device::named(spec)?],
        None => devices(),
    };
    if args.json {
        outln!("{:#}", Value::from_iter(list.iter().map(to_json)));
    } else {
        for device in &list {
            print(device, args.verbose);
        }
    }
    Ok(())
}

fn state(device: &Device) -> &'static str {
    if device.port().active { "PORT_ACTIVE" } else { "PORT_DOWN" }
}

fn receive_buffer() -> Option<(usize, Option<String>)> {
    OpenOptions::from_environment().unwrap_or_default().granted_receive_buffer().ok()
}

fn print(device: &Device, verbose: bool) {
    let (port, attr) = (device.port(), device.attributes(Limits::default()));
    let item =
        |name: &str, value: &dyn std::fmt::Display| outln!("\t{:<32}{value}", format!("{name}:"));
    outln!("hca_id:\t{}", device.name());
    item("transport", &"RoCEv2 in user space (0)");
    item("fw_ver", &attr.fw_ver);
    item("interface", &device.interface().unwrap_or("none"));
    item("node_guid", &"changes with each open");
    item("sys_image_guid", &attr.sys_image_guid);
    item("vendor_id", &format_args!("{:#x}", attr.vendor_id));
    item("vendor_part_id", &attr.vendor_part_id);
    item("hw_ver", &format_args!("{:#x}", attr.hw_ver));
    item("phys_port_cnt", &attr.phys_port_cnt);
    if verbose {
        for (name, value) in attributes(&attr) {
            if IN_HEXADECIMAL.contains(&name) {
                item(name, &format_args!("{value:#x}"));
            } else {
                item(name, &value);
            }
            if name == "device_cap_flags" {
                attr.device_cap_flags
                    .iter_names()
                    .for_each(|(flag, _)| outln!("\t{:<32}{flag}", ""));
            }
        }
        item("atomic_cap", &attr.atomic_cap);
    }
    if let Some((bytes, advice)) = receive_buffer() {
        let advice = advice.map(|advice| format!(" ({advice})")).unwrap_or_default();
        item("receive_buffer", &format_args!("{bytes} bytes{advice}"));
    }
    let item = |name: &str, value: &dyn std::fmt::Display| {
        outln!("\t\t\t{:<24}{value}", format!("{name}:"));
    };
    outln!("\t\tport:\t1");
    item("state", &format_args!("{} ({})", state(device), if port.active { 4 } else { 1 }));
    item("max_mtu", &format_args!("{} ({})", port.max_mtu.bytes(), port.max_mtu as u8));
    item("active_mtu", &format_args!("{} ({})", port.active_mtu.bytes(), port.active_mtu as u8));
    item("link_layer", &"Ethernet");
    if verbose {
        item("max_msg_sz", &format_args!("{:#x}", port.max_message));
        item("pkey_tbl_len", &port.pkey_table_len);
        item("gid_tbl_len", &port.gid_table_len);
        if let Some(speed) = port.speed {
            item("active_speed", &format_args!("{} Gbps", f64::from(speed) / 1000.0));
        }
        item("phys_state", &if port.active { "LINK_UP (5)" } else { "DISABLED (3)" });
        item("PKey[  0]", &format_args!("{:#06x}", PKey::DEFAULT.0));
    }
    if device.leases_address() {
        item("lease", &lease(device).as_deref().unwrap_or("none until it is opened (DHCP)"));
    }
    for (index, gid) in (0..).zip(device.gids()) {
        item(&format!("GID[{index:3}]"), &format_args!("{gid}, {}", port.gid_type(index)));
    }
    outln!("");
}

fn lease(device: &Device) -> Option<String> {
    let published = published_counters().ok()?.into_iter();
    let mut same = published.filter(|open| open.device == device.name() && open.shares_network());
    same.find_map(|open| open.lease.as_ref().map(counters::lease))
}

const IN_HEXADECIMAL: [&str; 4] =
    ["max_mr_size", "page_size_cap", "device_cap_flags", "completion_timestamp_mask"];

fn attributes(attr: &DeviceAttr) -> Vec<(&'static str, u64)> {
    // No `..`: a new field must not be forgotten.
    let Limits {
        max_pd,
        max_mr,
        max_mw,
        max_cq,
        max_cqe,
        max_qp,
        max_srq,
        max_xrcd,
        max_ah,
        max_mcast_grp,
        max_mcast_qp_attach,
        max_qp_wr,
        max_sge,
        max_recv_sge,
        max_srq_wr,
        max_srq_sge,
        max_inline_data,
        max_dm_size,
        // shown with their attributes
        max_read_sge: _,
        atomics: _,
        max_mr_size: _,
        early_posts: _,
        send_queue: _,
        ack_timer: _,
    } = attr.limits;
    vec![
        ("max_mr_size", attr.max_mr_size),
        ("page_size_cap", attr.page_size_cap),
        ("max_qp", max_qp as u64),
        ("max_qp_wr", max_qp_wr.into()),
        ("device_cap_flags", attr.device_cap_flags.bits()),
        ("max_sge", max_sge.min(max_recv_sge).into()),
        ("max_sge_rd", attr.max_sge_rd.into()),
        ("max_inline_data", max_inline_data.into()),
        ("max_cq", max_cq as u64),
        ("max_cqe", max_cqe as u64),
        ("max_mr", max_mr as u64),
        ("max_mw", max_mw as u64),
        ("max_pd", max_pd as u64),
        ("max_qp_rd_atom", attr.max_qp_rd_atom.into()),
        ("max_res_rd_atom", attr.max_res_rd_atom),
        ("max_qp_init_rd_atom", attr.max_qp_init_rd_atom.into()),
        ("max_ah", max_ah as u64),
        ("max_srq", max_srq as u64),
        ("max_xrcd", max_xrcd as u64),
        ("max_srq_wr", max_srq_wr.into()),
        ("max_srq_sge", max_srq_sge.into()),
        ("max_mcast_grp", max_mcast_grp as u64),
        ("max_mcast_qp_attach", max_mcast_qp_attach as u64),
        ("max_total_mcast_qp_attach", (max_mcast_grp * max_mcast_qp_attach) as u64),
        ("max_pkeys", attr.max_pkeys.into()),
        ("local_ca_ack_delay", attr.local_ca_ack_delay.into()),
        ("max_dm_size", max_dm_size as u64),
        ("completion_timestamp_mask", attr.completion_timestamp_mask),
        ("hca_core_clock", attr.hca_core_clock),
        ("max_cq_count", attr.max_cq_count.into()),
        ("max_cq_period", attr.max_cq_period.into()),
    ]
}

fn to_json(device: &Device) -> Value {
    let (port, attr) = (device.port(), device.attributes(Limits::default()));
    let gids = (0_u16..).zip(device.gids());
    let number = |(name, value): (&str, u64)| (name.to_owned(), value.into());
    let cap_flags: Vec<_> = attr.device_cap_flags.iter_names().map(|(name, _)| name).collect();
    json!({
        "name": device.name(),
        "interface": device.interface(),
        "fw_ver": attr.fw_ver,
        "sys_image_guid": attr.sys_image_guid.to_string(),
        "vendor_id": attr.vendor_id,
        "vendor_part_id": attr.vendor_part_id,
        "hw_ver": attr.hw_ver,
        "device_cap_flags": cap_flags,
        "atomic_cap": attr.atomic_cap.to_string(),
        "receive_buffer": receive_buffer().map(|(bytes, _)| bytes),
        "attributes": attributes(&attr).into_iter().map(number).collect::<serde_json::Map<_, _>>(),
        "ports": [{
            "port": 1,
            "state": state(device),
            "max_mtu": port.max_mtu.bytes(),
            "active_mtu": port.active_mtu.bytes(),
            "max_message": port.max_message,
            "link_layer": "Ethernet",
            "speed_mbps": port.speed,
            "lease": device.leases_address().then(|| lease(device)),
            "gid_table_len": port.gid_table_len,
            "pkeys": [format!("{:#06x}", PKey::DEFAULT.0)],
            "gids": gids
                .map(|(index, gid)| {
                    json!({
                        "index": index,
                        "gid": gid.to_string(),
                        "address": gid.to_ip(),
                        "type": port.gid_type(index).to_string(),
                    })
                })
                .collect::<Vec<_>>(),
        }],
    })
}
