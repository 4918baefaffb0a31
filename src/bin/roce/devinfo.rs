//! `roce devinfo`: what can be opened on this host, as `ibv_devinfo` shows it.

use roce::{Device, Gid, Limits, devices};
use serde_json::{Value, json};

use crate::Failure;

/// List the devices of this host, as ibv_devinfo does.
///
/// There is one device for loopback, and one for each network interface with an address. Any single address can also be opened
/// as udp:ADDRESS. A GID is an address of the device: an IPv4 address appears as ::ffff:a.b.c.d.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this device: a name from the list, or udp:ADDRESS
    #[arg(short = 'd', long, value_name = "DEV")]
    device: Option<String>,
    /// Also show limits and every GID
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON, with everything
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let list = match &args.device {
        Some(spec) => vec![Device::named(spec)?],
        None => devices(),
    };
    if args.json {
        println!("{:#}", Value::from_iter(list.iter().map(to_json)));
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

/// The number that verbs use for an MTU.
fn mtu_code(mtu: roce::Mtu) -> u8 {
    mtu as u8
}

fn print(device: &Device, verbose: bool) {
    let port = device.port();
    println!("hca_id:\t{}", device.name());
    println!("\ttransport:\t\t\tRoCEv2 in user space (0)");
    println!("\tfw_ver:\t\t\t\t{}", env!("CARGO_PKG_VERSION"));
    println!("\tinterface:\t\t\t{}", device.interface().unwrap_or("none"));
    println!("\tvendor_id:\t\t\t0xffffff");
    println!("\tphys_port_cnt:\t\t\t1");
    if verbose {
        for (name, value) in limits() {
            println!("\t{:<32}{value}", format!("{name}:"));
        }
    }
    println!("\t\tport:\t1");
    println!("\t\t\tstate:\t\t\t{} ({})", state(device), if port.active { 4 } else { 1 });
    println!("\t\t\tmax_mtu:\t\t{} ({})", port.max_mtu.bytes(), mtu_code(port.max_mtu));
    println!("\t\t\tactive_mtu:\t\t{} ({})", port.active_mtu.bytes(), mtu_code(port.active_mtu));
    println!("\t\t\tlink_layer:\t\tEthernet");
    if verbose {
        println!("\t\t\tmax_msg_sz:\t\t{:#x}", port.max_message);
        println!("\t\t\tpkey_tbl_len:\t\t1");
        println!("\t\t\tgid_tbl_len:\t\t{}", device.addresses().len());
    }
    for (index, address) in device.addresses().iter().enumerate() {
        println!("\t\t\tGID[{index:3}]:\t\t{}, RoCE v2", Gid::from(address.ip));
    }
    println!();
}

fn limits() -> Vec<(&'static str, u64)> {
    let Limits {
        max_pd, max_mr, max_mw, max_cq, max_cqe, max_qp, max_srq, max_xrcd, max_qp_wr, max_sge, max_inline_data, ..
    } = Limits::default();
    let Limits { max_mcast_grp, max_mcast_qp_attach, .. } = Limits::default();
    vec![
        ("max_qp", max_qp as u64),
        ("max_qp_wr", max_qp_wr.into()),
        ("max_sge", max_sge.into()),
        ("max_inline_data", max_inline_data.into()),
        ("max_srq", max_srq as u64),
        ("max_xrcd", max_xrcd as u64),
        ("max_cq", max_cq as u64),
        ("max_cqe", max_cqe as u64),
        ("max_mr", max_mr as u64),
        ("max_mw", max_mw as u64),
        ("max_pd", max_pd as u64),
        ("max_mcast_grp", max_mcast_grp as u64),
        ("max_mcast_qp_attach", max_mcast_qp_attach as u64),
        ("max_total_mcast_qp_attach", (max_mcast_grp * max_mcast_qp_attach) as u64),
        ("max_pkeys", roce::PKeyTable::MAX as u64),
        ("max_qp_rd_atom", roce::transport::qp::MAX_RD_ATOMIC.into()),
        ("max_qp_init_rd_atom", roce::transport::qp::MAX_RD_ATOMIC.into()),
    ]
}

fn to_json(device: &Device) -> Value {
    let port = device.port();
    let gids = device.addresses().iter().enumerate();
    json!({
        "name": device.name(),
        "interface": device.interface(),
        "limits": limits().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<serde_json::Map<_, _>>(),
        "ports": [{
            "port": 1,
            "state": state(device),
            "max_mtu": port.max_mtu.bytes(),
            "active_mtu": port.active_mtu.bytes(),
            "max_message": port.max_message,
            "link_layer": "Ethernet",
            "gids": gids
                .map(|(index, address)| {
                    json!({ "index": index, "gid": Gid::from(address.ip).to_string(), "address": address.ip, "type": "RoCE v2" })
                })
                .collect::<Vec<_>>(),
        }],
    })
}
