use std::fs;

use roce::{Device, Gid, GidType, Limits, OpenOptions, PKey, link::Fabric};

use super::{loopback, open};

#[test]
fn attributes_of_a_device() {
    let limits = Limits { max_qp: 77, ..Limits::default() };
    let (a, b) = (loopback(OpenOptions { limits, ..OpenOptions::default() }), open());
    let (one, other) = (a.query_device(), b.query_device());
    assert_eq!((one.limits, a.limits()), (limits, limits));
    assert_eq!(one.max_res_rd_atom, 77 * 128);
    assert_eq!((one.max_srq_wr, one.max_srq_sge), (limits.max_qp_wr, limits.max_sge));
    assert_ne!(one.node_guid, other.node_guid);
    assert_eq!(one.sys_image_guid, other.sys_image_guid, "the same interface");
    assert_eq!(one.node_guid.0[0] & 3, 2, "locally assigned, of one device");
    assert_eq!(
        (one.phys_port_cnt, one.hca_core_clock, one.completion_timestamp_mask),
        (1, 1_000_000, u64::MAX)
    );
    let seeded = || {
        loopback(OpenOptions { seed: Some([7; 32]), ..OpenOptions::default() })
            .query_device()
            .node_guid
    };
    assert_eq!(seeded(), seeded());
}

#[test]
fn tables_of_a_port() {
    let context = open();
    let port = context.query_port();
    assert!(port.active && port.bad_pkeys == 0);
    let table = context.query_gid_table();
    assert_eq!(table.len(), 2, "its one address at index 0, and at index 1 as with rxe");
    assert_eq!(context.gids()[0], context.gids()[1]);
    for (entry, index) in table.iter().zip(0..) {
        assert_eq!((entry.gid, entry.index, entry.port), (context.gids()[0], index, 1));
        assert_eq!(entry.gid_type, GidType::RoceV2);
    }
    let index = fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
    assert_eq!(table[0].interface, index.trim().parse::<u32>().unwrap());
    assert_eq!(context.query_gid(0), Some(context.gids()[0]));
    let named = Device::named("roce_lo").unwrap().gids();
    assert_eq!((named.len(), named[0]), (2, named[1]));
    assert_eq!(context.query_gid(port.gid_table_len - 1), Some(Gid::default()), "unused");
    assert_eq!(context.query_gid(port.gid_table_len), None);
    assert_eq!(
        (context.query_pkey(0), context.query_pkey(port.pkey_table_len)),
        (Some(PKey::DEFAULT), None)
    );
}

#[test]
fn a_network_in_the_process_has_no_interface() {
    let fabric = Fabric::new(Default::default(), 0);
    let context = fabric.open("10.0.0.1".parse().unwrap(), OpenOptions::default()).unwrap();
    assert_eq!(context.query_gid_table()[0].interface, 0);
    assert!(context.query_port().active);
}
