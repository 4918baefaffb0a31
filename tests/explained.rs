//! Stderr of a device opened with `OpenOptions::explain`; each program runs in its own process.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use roce::{
    Access, Context, Device, ExplainFormat, OpenOptions, QpInitAttr, QpType,
    cm::{EventChannel, EventKind, PortSpace},
    transport::{
        addr::{AddressVector, Mtu, QKey, Qpn},
        mem::RKey,
        psn::Psn,
        qp::{Init, PeerAttr, RequesterAttr, ResponderAttr, Rtr, Rts, State},
        work::{Data, RecvWr, Remote, SendWr, UdDestination},
    },
};

const PROGRAM: &str = "ROCE_TEST_PROGRAM";

/// `None` in the program's process.
fn said(test: &str, wish: &str) -> Option<String> {
    if env::var_os(PROGRAM).is_some() {
        return None;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", crate::own_test::named(&format!("explained::{test}")), "--nocapture"]);
    command.env(PROGRAM, test).env("ROCE_EXPLAIN", wish);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stderr).unwrap())
}

fn open(explain: Option<ExplainFormat>) -> Context {
    Device::named("roce_lo").unwrap().open(OpenOptions { explain, ..Default::default() }).unwrap()
}

fn objects(text: &str) -> Vec<serde_json::Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn make_mistakes(context: &Context) {
    let pd = context.alloc_pd().unwrap();
    assert!(context.create_cq(0, None).is_err());
    let cq = context.create_cq(8, None).unwrap();
    assert!(pd.allocate(64, Access::REMOTE_WRITE).is_err());
    let mut attr = QpInitAttr::new(QpType::Rc, &cq);
    attr.caps.max_send_sge = 10_000;
    assert!(pd.create_qp(&attr).is_err());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    for _ in 0..3 {
        assert!(qp.post_recv(&[RecvWr::new(7, [])]).is_err());
    }
    assert!(qp.to_rts(Rts::Resume).is_err());
}

#[test]
fn calls() {
    let Some(text) = said("calls", "0") else {
        return make_mistakes(&open(Some(ExplainFormat::Json)));
    };
    let found = objects(&text);
    let causes: Vec<_> = found
        .iter()
        .map(|object| (object["what"].as_str().unwrap(), object["cause"].as_str().unwrap()))
        .collect();
    assert_eq!(
        causes,
        [
            ("ibv_create_cq", "object_size"),
            ("ibv_reg_mr", "remote_without_local_write"),
            ("ibv_create_qp RC", "object_size"),
            ("ibv_post_recv 7: 0 B", "post_state"),
            ("ibv_modify_qp to RTS, from RESET", "illegal_transition"),
        ]
    );
    assert_eq!(found[3]["latest"].as_array().unwrap().len(), 2, "{:#?}", found[3]);
}

#[test]
fn nothing_is_said_unless_it_is_asked_for() {
    // The program's options ignore the environment.
    let Some(text) = said("nothing_is_said_unless_it_is_asked_for", "1") else {
        return make_mistakes(&open(None));
    };
    assert!(!text.contains("roce:") && !text.contains("ibv_"), "{text}");
}

#[test]
fn the_environment_asks_for_it_too() {
    let Some(text) = said("the_environment_asks_for_it_too", "1") else {
        let asked = OpenOptions::from_environment().unwrap();
        return make_mistakes(&Device::named("roce_lo").unwrap().open(asked).unwrap());
    };
    assert!(text.contains("roce: roce_lo: ibv_reg_mr: EINVAL\n  why:  REMOTE_WRITE"), "{text}");
}

/// The background thread finds a failure while the program ends.
#[test]
fn a_queue_pair_that_fails() {
    let Some(text) = said("a_queue_pair_that_fails", "0") else {
        let context = open(Some(ExplainFormat::Text));
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8, None).unwrap());
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
        qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
        let remote = Remote { address: 0, rkey: RKey(1) };
        qp.post_send(&[SendWr::write(3, remote, Data::inline(b"abcd"))]).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while qp.query().state != State::Err {
            assert!(Instant::now() < end);
        }
        std::process::exit(0);
    };
    // Either end may fail first.
    assert!(text.contains("key 0x00000001 names no region"), "{text}");
    assert!(text.contains("  before:\n") && text.contains("create_qp RC"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

/// Packets are reported once per unreachable address; those of a connection at its first timeout.
#[test]
fn packets_to_nobody() {
    let Some(text) = said("packets_to_nobody", "0") else {
        let (near, far) = (open(Some(ExplainFormat::Json)), open(None));
        let (pd, cq) = (near.alloc_pd().unwrap(), near.create_cq(8, None).unwrap());
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq)).unwrap();
        qp.to_init(Init::default()).unwrap();
        qp.to_rtr(Rtr::Ud).unwrap();
        qp.to_rts(Rts::Ud(Psn::new(0))).unwrap();
        let nobody = IpAddr::from([127, 99, 18, 27]);
        for address in [far.gids()[0].to_ip(), nobody, nobody] {
            let av = AddressVector::new(address.into(), 0);
            let to = UdDestination::new(av, Qpn::new(7), QKey(0x1111));
            qp.post_send(&[SendWr::send_to(1, to, Data::inline(b"abcd"))]).unwrap();
        }
        let connected = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
        connected.to_init(Init::default()).unwrap();
        let peer = PeerAttr {
            dest_qpn: Qpn::new(7),
            path_mtu: Mtu::B1024,
            rq_psn: Psn::new(0),
            av: AddressVector::new(IpAddr::from([127, 99, 18, 28]).into(), 0),
        };
        let responder = ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 12 };
        connected.to_rtr(Rtr::new(QpType::Rc, peer, responder)).unwrap();
        let requester = RequesterAttr { timeout: 8, retry_cnt: 2, rnr_retry: 7, max_rd_atomic: 1 };
        connected.to_rts(Rts::new(QpType::Rc, Psn::new(0), requester)).unwrap();
        connected.post_send(&[SendWr::send(2, Data::inline(b"abcd"))]).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while near.counters().sent_packets < 4 || connected.query().state != State::Err {
            assert!(Instant::now() < end);
        }
        std::process::exit(0);
    };
    let found = objects(&text);
    let causes: Vec<_> = found.iter().map(|object| object["cause"].as_str().unwrap()).collect();
    assert_eq!(causes, ["nobody_there", "nobody_there", "no_response"], "{text}");
    let nobody = &found[0];
    let why =
        "no program of this user receives at 127.99.18.27, the destination of queue pair 0x000007";
    assert_eq!(nobody["why"], why);
}

#[test]
fn a_connection_that_is_refused() {
    let Some(text) = said("a_connection_that_is_refused", "0") else {
        let (near, far) = (open(Some(ExplainFormat::Json)), open(None));
        let address: IpAddr = far.gids()[0].to_ip();
        let channel = EventChannel::new().unwrap();
        let id = channel.create_id(PortSpace::Tcp);
        id.set_context(&near).unwrap();
        let wait = |kind: EventKind| {
            let event = channel.wait(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(event.kind(), kind, "{event:?}");
        };
        id.resolve_addr(None, SocketAddr::new(address, 4000), Duration::from_secs(1)).unwrap();
        wait(EventKind::AddrResolved);
        id.resolve_route(Duration::from_secs(1)).unwrap();
        wait(EventKind::RouteResolved);
        let cq = near.create_cq(8, None).unwrap();
        let qp = near.alloc_pd().unwrap().create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
        id.adopt_qp(&qp).unwrap();
        id.connect(&Default::default()).unwrap();
        wait(EventKind::Rejected);
        assert_ne!(qp.qpn(), Qpn::new(0));
        return;
    };
    let found = objects(&text);
    let refused = found.iter().find(|object| object["cause"] == "nobody_listens");
    let refused = refused.unwrap_or_else(|| panic!("{text}"));
    assert!(refused["what"].as_str().unwrap().starts_with("RDMA_CM_EVENT_REJECTED, 127.0.0."));
    assert!(refused["look"].as_str().unwrap().contains("rdma_listen"));
}
