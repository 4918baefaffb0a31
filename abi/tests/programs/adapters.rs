//! `ROCE_AS`: devices report their profile, and enforce its limits. `ROCE_DEVICES` with another
//! host's names.

use std::collections::BTreeMap;

use roce_provider::{DeviceCaps, Profile, transport::adapter::Limits};
use serde_json::Value;

use super::program;

fn errno(name: Option<&str>) -> i32 {
    match name {
        Some("EINVAL") => libc::EINVAL,
        Some("ENOMEM") => libc::ENOMEM,
        Some("ENOSPC") => libc::ENOSPC,
        Some("EOVERFLOW") => libc::EOVERFLOW,
        Some("EOPNOTSUPP") => libc::EOPNOTSUPP,
        other => panic!("{other:?}"),
    }
}

/// Limits below some adapters'.
const MOST: [(&str, u64); 3] =
    [("max_qp", 1 << 17), ("max_mw", 1 << 20), ("max_qp_init_rd_atom", 128)];

#[test]
fn each_adapter_says_what_its_profile_says_and_its_limits_hold() {
    let Some(program) = program("adapter") else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    for name in Profile::built_in() {
        let profile = Profile::named(name).unwrap();
        let limits = profile.limits(Limits::default());
        let number = |key: &str, otherwise: u64| profile.number(key).unwrap_or(otherwise);
        let devices = number("device.devices", 1);
        let first = profile.text("device.names").unwrap().replace("{}", "0");
        let (depth, inline) =
            limits.send_queue.map_or((limits.max_qp_wr, limits.max_inline_data), |memory| {
                (memory.queue / 256, memory.element - memory.connected - 4)
            });
        let v1 = matches!(name, "connectx-5" | "connectx-6dx" | "connectx-7" | "bluefield-2");
        let variables = [
            ("ROCE_AS", name.to_owned()),
            ("ROCE_DEVICES", String::new()),
            ("NAME", first),
            ("DEVICES", devices.to_string()),
            ("VECTORS", number("device.num_comp_vectors", 1).to_string()),
            ("SIZES", errno(profile.text("errno.sizes")).to_string()),
            ("OBJECTS", errno(profile.text("errno.objects")).to_string()),
            ("MISSING", errno(profile.text("errno.missing")).to_string()),
            ("DEVICE_MEMORY", limits.max_dm_size.to_string()),
            ("SEND_SGE", limits.max_sge.to_string()),
            ("RECV_SGE", limits.max_recv_sge.to_string()),
            ("INLINE", inline.to_string()),
            ("DEPTH", depth.to_string()),
            ("EARLY", u8::from(limits.early_posts).to_string()),
            ("GIDS", number("port.gid_tbl_len", 256).min(256).to_string()),
            ("V1", u8::from(v1).to_string()),
            // with immediate data, and with a GRH
            ("RECEIVED", if name == "rxe" { 3 } else { 2 }.to_string()),
            ("ROCE_EXPLAIN", "json".to_owned()),
        ];
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let output = program.run(&variables, 0);
        let (told, shown): (Vec<_>, Vec<_>) =
            output.stderr.lines().partition(|line| line.starts_with('{'));
        let mut sizes = 0;
        for line in told {
            let explained: Value = serde_json::from_str(line).unwrap();
            let key = match explained["cause"].as_str() {
                Some("object_size") => "errno.sizes",
                Some("no_such_objects") => "errno.missing",
                Some("too_many_objects" | "device_memory_used_up") => "errno.objects",
                Some("completion_vector") => {
                    let vectors = number("device.num_comp_vectors", 1);
                    let text = format!("comp_vector is {vectors} and the device has {vectors},");
                    assert!(line.contains(&text), "{name}: {line}");
                    continue;
                }
                _ => continue,
            };
            sizes += u32::from(key == "errno.sizes");
            assert_eq!(explained["errno"].as_str(), profile.text(key), "{name}: {line}");
        }
        assert!(sizes > 0, "{name}");
        let shown: BTreeMap<&str, &str> =
            shown.into_iter().filter_map(|line| line.split_once(' ')).collect();
        if let Some(version) = profile.text("device.fw_ver") {
            assert_eq!(shown["fw_ver"], version, "{name}");
        }
        for (attribute, value) in shown.iter().filter(|(attribute, _)| **attribute != "fw_ver") {
            let given = ["device", "limits"]
                .iter()
                .find_map(|section| profile.number(&format!("{section}.{attribute}")));
            let Some(given) = given else { continue };
            let value: u64 = value.parse().unwrap();
            let most = MOST.iter().find(|(less, _)| less == attribute);
            let expected = match (*attribute, most) {
                // flows need a raw device
                ("device_cap_flags", _) => {
                    given & (DeviceCaps::all() - DeviceCaps::MANAGED_FLOW_STEERING).bits()
                }
                (_, Some((_, most))) => given.min(*most),
                _ => given,
            };
            assert_eq!(value, expected, "{name}: {attribute}");
        }
    }
}

#[test]
fn a_profile_that_is_wrong_leaves_no_device_and_one_line() {
    let variables = [("ROCE_AS", "connectx-99")];
    let Some(output) = program("adapter").map(|program| program.run(&variables, 1)) else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    let line = "roce: ROCE_AS: unknown profile \"connectx-99\"; expected connectx-5,";
    assert_eq!(
        output.stderr.lines().filter(|said| said.starts_with(line)).count(),
        1,
        "{}",
        output.stderr
    );
}

/// Launchers pass the variable to every host.
#[test]
fn a_device_of_another_host_is_named_in_one_line() {
    let variables = [("ROCE_DEVICES", "roce_lo,eth77")];
    let Some(output) = program("left_open").map(|program| program.run(&variables, 0)) else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    let line = "roce: ROCE_DEVICES: ignored, because this host does not have them: eth77\n";
    assert_eq!(output.stderr, line);
}
