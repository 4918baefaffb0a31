//! Peers without a neighbour or a route, and a host without IPv4.

use std::net::IpAddr;

use roce::{Context, Data, Device, Gid, OpenOptions, QpInitAttr, QpType, SendWr, WcStatus};

use super::{cable, completion, gids, inside, ip, work_together, works_over};

/// Connecting succeeds; a send ends as with a silent peer.
#[track_caller]
fn nobody_responds(context: &Context, peer: &str) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None).unwrap();
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    let mut nobody = qp.endpoint(0).unwrap();
    nobody.gid = Gid::from(peer.parse::<IpAddr>().unwrap());
    qp.connect_to(nobody).unwrap();
    qp.post_send(&[SendWr::send(1, Data::empty())]).unwrap();
    let error = completion(&cq).result.unwrap_err();
    assert_eq!(error.status, WcStatus::RetryExcErr, "{peer}: {error:?}");
}

#[test]
fn a_link_local_peer_that_is_down() {
    if !inside("interface::reach::a_link_local_peer_that_is_down") {
        return;
    }
    cable();
    ip("addr add fe80::1/64 dev v0 nodad");
    let context = Device::named("roce_v0").unwrap().open(OpenOptions::default()).unwrap();
    assert_eq!(gids(&context), ["fe80::1"]);
    nobody_responds(&context, "fe80::2");
}

/// Kernel drivers refuse RTR (ENETUNREACH).
#[test]
fn a_peer_without_a_route() {
    if !inside("interface::reach::a_peer_without_a_route") {
        return;
    }
    cable();
    ip("addr add 10.9.0.1/24 dev v0");
    ip("addr add fd09::1/64 dev v0 nodad");
    let context = Device::named("roce_v0").unwrap().open(OpenOptions::default()).unwrap();
    for peer in ["192.0.2.1", "2001:db8::1"] {
        let errors = context.link_counters().send_errors;
        nobody_responds(&context, peer);
        let counters = context.link_counters();
        assert!(counters.send_errors > errors, "{peer}: {counters:?}");
        let refused = counters.last_send_error.unwrap();
        assert!(refused.contains("Network is unreachable"), "{peer}: {refused}");
    }
}

#[test]
fn a_host_without_ipv4() {
    if !inside("interface::reach::a_host_without_ipv4") {
        return;
    }
    cable();
    ip("addr del 127.0.0.1/8 dev lo");
    for net in ["fd09::", "fe80::"] {
        let ends = [("v0", format!("{net}1")), ("v1", format!("{net}2"))];
        let contexts = ends.each_ref().map(|(end, address)| {
            ip(&format!("addr add {address}/64 dev {end} nodad"));
            let device = Device::named(&format!("roce_{end}")).unwrap();
            let context = device.open(OpenOptions::default()).unwrap();
            assert_eq!(gids(&context), [address.as_str()]);
            works_over(&context, 0);
            context
        });
        work_together(&contexts, 0);
        drop(contexts);
        for (end, address) in ends {
            ip(&format!("addr del {address}/64 dev {end}"));
        }
    }
}
