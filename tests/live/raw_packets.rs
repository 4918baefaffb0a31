use std::{
    net::UdpSocket,
    process::Command,
    time::{Duration, Instant},
};

use roce::{
    Access, AsyncEvent, CompletionQueue, Context, Data, Device, DropReason, EthFilter, Flow,
    FlowAttr, FlowError, FlowKind, FlowSpec, Init, Ipv4Filter, Ipv6Filter, MemoryRegion,
    ModifyError, ObjectError, ObjectMismatch, OpenOptions, PortFilter, PostError, QpInitAttr,
    QpType, QueuePair, RecvWr, Rtr, Rts, SendFlags, SendOp, SendWr, SrqAttr, State, Wc, WcStatus,
};

use super::{
    PATIENCE, Side, connect, noise,
    own_link::exchange,
    raw::{in_new_namespace, ip, open},
};

const A: &str = "raw:veth0,ip=10.78.0.1/24,mac=02:00:00:00:00:0a";
const B: &str = "raw:veth1,ip=10.78.0.9/24,mac=02:00:00:00:00:0b";
const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 0xA];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 0xB];
const SLOT: usize = 2048;
const SLOTS: usize = 32;

struct Raw {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    next: usize,
}

impl Raw {
    fn on(context: &Context) -> Self {
        let raw = Self::in_reset(context);
        raw.qp.to_init(Init::default()).unwrap();
        raw.qp.to_rtr(Rtr::RawPacket).unwrap();
        raw.qp.to_rts(Rts::RawPacket).unwrap();
        raw
    }

    fn in_reset(context: &Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256, None).unwrap();
        let qp = pd.create_qp(&QpInitAttr::new(QpType::RawPacket, &cq)).unwrap();
        let memory = pd.allocate(SLOT * SLOTS, Access::LOCAL_WRITE).unwrap();
        Self { qp, cq, memory, next: 0 }
    }

    fn flow(&self, specs: impl Into<Vec<FlowSpec>>) -> Flow {
        self.qp.create_flow(&FlowAttr { specs: specs.into(), ..FlowAttr::default() }).unwrap()
    }

    fn kind(&self, kind: FlowKind) -> Flow {
        self.qp.create_flow(&FlowAttr { kind, ..FlowAttr::default() }).unwrap()
    }

    fn post(&mut self, count: usize) {
        for _ in 0..count {
            let slot = self.next % (SLOTS - 1);
            self.next += 1;
            let sge = self.memory.sge(slot * SLOT..(slot + 1) * SLOT);
            self.qp.post_recv(&[RecvWr::new(slot as u64, [sge])]).unwrap();
        }
    }

    fn send(&self, frame: &[u8]) -> Wc {
        let start = SLOT * (SLOTS - 1);
        self.memory.write_at(start, frame).unwrap();
        let sge = self.memory.sge(start..start + frame.len());
        self.qp.post_send(&[SendWr::send(100, sge)]).unwrap();
        self.complete()
    }

    fn complete(&self) -> Wc {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(wc) = self.cq.poll_one() {
                return wc;
            }
            assert!(Instant::now() < end, "nothing completes");
        }
    }

    fn tagged(&self) -> (Vec<u8>, u32) {
        let wc = self.complete();
        let ok = wc.result.unwrap();
        let start = wc.wr_id as usize * SLOT;
        (self.memory.to_vec(start..start + ok.byte_len as usize).unwrap(), ok.flow_tag)
    }

    fn receive(&self) -> Vec<u8> {
        self.tagged().0
    }

    fn hears_nothing(&self) {
        assert_eq!(self.cq.poll_one().map(|wc| wc.wr_id), None);
    }
}

fn frame(dst: [u8; 6], src: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&dst[..], &src, &kind.to_be_bytes(), payload].concat()
}

fn udp(dst: [u8; 6], ip: [[u8; 4]; 2], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let total = (28 + payload.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    header.extend(ip.as_flattened());
    let sum: u32 =
        header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(ports[0].to_be_bytes());
    header.extend(ports[1].to_be_bytes());
    header.extend((total - 20).to_be_bytes());
    header.extend([0, 0]);
    header.extend(payload);
    frame(dst, MAC_A, 0x0800, &header)
}

fn eth(value: EthFilter, mask: EthFilter) -> FlowSpec {
    FlowSpec::Eth { value, mask }
}

fn to(dst: [u8; 6]) -> FlowSpec {
    let mask = EthFilter { dst: [255; 6], ..EthFilter::default() };
    eth(EthFilter { dst, ..EthFilter::default() }, mask)
}

fn in_namespace(name: &str, inside: impl FnOnce()) {
    let options = ["--map-root-user", "--net", "--mount"];
    in_new_namespace(&format!("raw_packets::{name}"), &options, inside);
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn promiscuity(interface: &str) -> u32 {
    let shown = Command::new("ip").args(["-d", "link", "show", interface]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let (_, rest) = shown.split_once("promiscuity ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// A capture has sent frames and those that a flow takes or drops, byte for byte; no others.
#[test]
fn a_capture_has_raw_packets() {
    in_namespace("a_capture_has_raw_packets", || {
        let path = std::env::temp_dir().join(format!("roce-raw-{}.pcapng", std::process::id()));
        let options = OpenOptions { pcap: Some(path.clone()), ..OpenOptions::default() };
        let (a, b) = (open(A), Device::named(B).unwrap().open(options).unwrap());
        let (sender, mut receiver) = (Raw::on(&a), Raw::on(&b));
        let of_kind = |ether_type| {
            let mask = EthFilter { ether_type: u16::MAX, ..EthFilter::default() };
            eth(EthFilter { ether_type, ..EthFilter::default() }, mask)
        };
        let _taken = receiver.flow([of_kind(0x88B5)]);
        let _dropped = receiver.flow([of_kind(0x88B6), FlowSpec::Drop]);
        receiver.post(1);
        let frames = [0x88B7, 0x88B6, 0x88B5].map(|kind| frame(MAC_B, MAC_A, kind, &[7; 60]));
        frames.iter().for_each(|frame| assert!(sender.send(frame).result.is_ok()));
        assert_eq!(receiver.receive(), frames[2]);
        let response = frame(MAC_A, MAC_B, 0x88B5, &[9; 60]);
        assert!(receiver.send(&response).result.is_ok());
        drop((receiver, _taken, _dropped, b));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let places: Vec<_> = [&frames[1], &frames[2], &response]
            .map(|frame| bytes.windows(frame.len()).position(|window| window == frame))
            .into();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
        assert!(!bytes.windows(74).any(|window| window == frames[0]));
    });
}

#[test]
fn other_devices_have_none() {
    let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
    let refused = pd.create_qp(&QpInitAttr::new(QpType::RawPacket, &cq)).unwrap_err();
    assert_eq!(refused, ObjectError::NoFrames);
    let datagrams = pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq)).unwrap();
    let refused = datagrams.create_flow(&FlowAttr::default()).unwrap_err();
    assert!(matches!(refused, FlowError::WrongService(QpType::Ud)), "{refused}");
}

#[test]
fn frames_between_two_devices() {
    in_namespace("frames_between_two_devices", || {
        let (a, b) = (open(A), open(B));
        let (from, mut at) = (Raw::on(&a), Raw::on(&b));
        let _flow = at.flow([to(MAC_B)]);
        at.post(20);
        for (length, seed) in [(14, 0), (15, 1), (60, 2), (1514, 3)] {
            let sent = frame(MAC_B, MAC_A, 0x88B5, &noise(length - 14, seed));
            assert_eq!(from.send(&sent).result.unwrap().byte_len, 0);
            assert_eq!(at.receive(), sent, "of {length} bytes");
        }
        // in SGEs, inline, and unsignaled
        let sent = frame(MAC_B, MAC_A, 0x88B5, &noise(186, 4));
        from.memory.write_at(0, &sent).unwrap();
        let pieces = [from.memory.sge(0..6), from.memory.sge(6..100), from.memory.sge(100..200)];
        let quiet = SendWr::send(1, pieces).with_flags(SendFlags::empty());
        let inline = SendWr::send(2, Data::inline(&sent[..40]));
        from.qp.post_send(&[quiet, inline]).unwrap();
        assert_eq!((at.receive(), at.receive()), (sent.clone(), sent[..40].to_vec()));
        assert_eq!(from.complete().wr_id, 2);
        from.hears_nothing();
        // to others and to itself
        from.send(&frame([2, 0, 0, 0, 0, 0xC], MAC_A, 0x88B5, &[1; 50]));
        from.send(&frame(MAC_A, MAC_A, 0x88B5, &[2; 50]));
        let last = frame(MAC_B, MAC_A, 0x88B5, &[3; 50]);
        from.send(&last);
        assert_eq!(at.receive(), last);
        assert!(b.link_counters().flow_unmatched >= 2, "{:?}", b.link_counters());
        let (sent, received) = (a.counters().sent_frames, b.counters().received_frames);
        assert_eq!((sent, received), (9, 7));
    });
}

#[test]
fn a_frame_that_is_too_long_or_too_short_fails() {
    in_namespace("a_frame_that_is_too_long_or_too_short_fails", || {
        let (a, b) = (open(A), open(B));
        let (from, mut at) = (Raw::on(&a), Raw::on(&b));
        let _flow = at.flow([to(MAC_B)]);
        for length in [13, 1515, 1600] {
            let sent = frame(MAC_B, MAC_A, 0x88B5, &[7; 1600]);
            let error = from.send(&sent[..length]).result.unwrap_err();
            assert_eq!(error.status, WcStatus::LocLenErr, "{length}: {error}");
            assert_eq!(from.qp.query().state, State::Sqe);
            from.qp.to_rts(Rts::Resume).unwrap();
        }
        // a VLAN tag adds 4 bytes
        let mut tagged = frame(MAC_B, MAC_A, 0x8100, &[0, 100, 0x88, 0xB5]);
        tagged.resize(1518, 9);
        at.post(1);
        from.send(&tagged).result.unwrap();
        assert_eq!(at.receive(), tagged);
        // without a receive request
        from.send(&frame(MAC_B, MAC_A, 0x88B5, &[1; 50]));
        until("it is dropped", || b.counters().dropped(DropReason::NoReceiveRequest) == 1);
        assert_eq!(at.qp.query().state, State::Rts);
        // a short receive buffer
        at.qp.post_recv(&[RecvWr::new(5, [at.memory.sge(0..63)])]).unwrap();
        at.post(3);
        from.send(&frame(MAC_B, MAC_A, 0x88B5, &[1; 50]));
        let wc = at.complete();
        assert_eq!((wc.wr_id, wc.result.unwrap_err().status), (5, WcStatus::LocLenErr));
        for _ in 0..3 {
            assert_eq!(at.complete().result.unwrap_err().status, WcStatus::WrFlushErr);
        }
        assert_eq!(at.qp.query().state, State::Err);
    });
}

/// Only a sniffer sees the transport's packets.
#[test]
fn connections_beside_raw_packets() {
    in_namespace("connections_beside_raw_packets", || {
        let contexts = [A, B].map(open);
        let [a, b] = &contexts;
        let (mut own, mut sniffer) = (Raw::on(b), Raw::on(b));
        // Its own MAC address makes a single-address interface promiscuous.
        let before = promiscuity("veth1");
        let flows = [own.flow([to(MAC_B)]), own.kind(FlowKind::AllDefault)];
        assert_eq!(promiscuity("veth1"), before + 1);
        let sniffing = sniffer.kind(FlowKind::Sniffer);
        assert_eq!(promiscuity("veth1"), before + 2);
        own.post(30);
        sniffer.post(30);
        let sides = contexts.clone().map(Side::on);
        connect(&sides[0], &sides[1]);
        exchange(&sides[0], &sides[1]);
        exchange(&sides[1], &sides[0]);
        // ARP, then a packet of the connection
        let frames: Vec<_> = std::iter::repeat_with(|| sniffer.receive()).take(6).collect();
        let is_roce = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[36..38] == [0x12, 0xB7];
        assert!(frames.iter().any(is_roce), "{frames:02x?}");
        while let Some(wc) = own.cq.poll_one() {
            let start = wc.wr_id as usize * SLOT;
            let frame = own.memory.to_vec(start..start + 60).unwrap();
            assert!(!is_roce(&frame), "{frame:02x?}");
        }
        drop(sniffing);
        drop(flows);
        assert_eq!(promiscuity("veth1"), before);
        let from = Raw::on(a);
        from.send(&frame(MAC_B, MAC_A, 0x88B5, &[1; 50])).result.unwrap();
        exchange(&sides[0], &sides[1]);
        own.post(0);
    });
}

#[test]
fn flows_by_every_field() {
    in_namespace("flows_by_every_field", || {
        let (a, b) = (open(A), open(B));
        let from = Raw::on(&a);
        let ips = [[10, 78, 0, 1], [10, 78, 0, 9]];
        let datagram = udp(MAC_B, ips, [6000, 5000], b"to a port");
        let mut tcp = datagram.clone();
        (tcp[23], tcp[24], tcp[25]) = (6, 0, 0);
        let mut v6 = frame(MAC_B, MAC_A, 0x86DD, &[0x60, 0x12, 0x34, 0x56, 0, 8, 17, 9]);
        v6.extend([&[0xFD; 16][..], &[0xFE; 16], &[0x17, 0x70, 0x13, 0x88, 0, 8, 0, 0]].concat());
        let mut vlan = frame(MAC_B, MAC_A, 0x8100, &[0x60, 100, 0x88, 0xB5]);
        vlan.resize(70, 1);
        let plain = frame(MAC_B, MAC_A, 0x88B5, &[1; 50]);
        let group = frame([1, 0, 0x5E, 1, 2, 3], MAC_A, 0x88B5, &[2; 50]);
        let foreign = frame([2, 0, 0, 0, 0, 0xC], MAC_A, 0x88B5, &[3; 50]);
        let none = EthFilter::default();
        let ports = |dst| (PortFilter { dst, src: 0 }, PortFilter { dst: u16::MAX, src: 0 });
        let (value, mask) = ports(5000);
        let v4 = Ipv4Filter { src: ips[0].into(), protocol: 17, ..Ipv4Filter::default() };
        let v4_mask = Ipv4Filter { src: [255; 4].into(), protocol: 255, ..Ipv4Filter::default() };
        let v6_value =
            Ipv6Filter { src: [0xFD; 16].into(), flow_label: 0x23456, ..Ipv6Filter::default() };
        let v6_mask =
            Ipv6Filter { src: [255; 16].into(), flow_label: 0xFFFFF, ..Ipv6Filter::default() };
        let kinds: [(&str, FlowSpec, &[u8]); 9] = [
            ("UDP", FlowSpec::Udp { value, mask }, &datagram),
            ("TCP", FlowSpec::Tcp { value, mask }, &tcp),
            ("IPv4", FlowSpec::Ipv4 { value: v4, mask: v4_mask }, &datagram),
            ("IPv6", FlowSpec::Ipv6 { value: v6_value, mask: v6_mask }, &v6),
            (
                "VLAN",
                eth(EthFilter { vlan_tag: 100, ..none }, EthFilter { vlan_tag: 0xFFF, ..none }),
                &vlan,
            ),
            (
                "ethertype",
                eth(
                    EthFilter { ether_type: 0x88B5, dst: MAC_B, ..none },
                    EthFilter { ether_type: u16::MAX, dst: [255; 6], ..none },
                ),
                &plain,
            ),
            (
                "sender",
                eth(EthFilter { src: MAC_A, ..none }, EthFilter { src: [255; 6], ..none }),
                &plain,
            ),
            ("group", to([1, 0, 0x5E, 1, 2, 3]), &group),
            ("foreign", to([2, 0, 0, 0, 0, 0xC]), &foreign),
        ];
        for (name, spec, wanted) in kinds {
            let mut at = Raw::on(&b);
            at.post(2);
            let flow = at.flow([spec, FlowSpec::Tag(7)]);
            // matches no spec
            from.send(&frame([2, 0, 0, 0, 0, 0xD], [2; 6], 0x88B6, &[4; 50]));
            from.send(wanted);
            assert_eq!(at.tagged(), (wanted.to_vec(), 7), "{name}");
            at.hears_nothing();
            drop(flow);
        }
    });
}

#[test]
fn priorities_defaults_and_drops() {
    in_namespace("priorities_defaults_and_drops", || {
        let (a, b) = (open(A), open(B));
        let from = Raw::on(&a);
        let ips = [[10, 78, 0, 1], [10, 78, 0, 9]];
        let to_port = |port| FlowSpec::Udp {
            value: PortFilter { dst: port, src: 0 },
            mask: PortFilter { dst: u16::MAX, src: 0 },
        };
        let mut raws: Vec<_> = (0..5).map(|_| Raw::on(&b)).collect();
        raws.iter_mut().for_each(|raw| raw.post(8));
        let with = |raw: &Raw, priority, spec| {
            let attr = FlowAttr { priority, specs: vec![spec], ..FlowAttr::default() };
            raw.qp.create_flow(&attr).unwrap()
        };
        let _flows = [
            with(&raws[0], 1, to(MAC_B)),
            with(&raws[1], 0, to_port(5000)),
            with(&raws[2], 0, to_port(5000)),
            raws[3].kind(FlowKind::McDefault),
            raws[4].kind(FlowKind::AllDefault),
        ];
        let best = udp(MAC_B, ips, [1, 5000], b"both");
        let rest = udp(MAC_B, ips, [1, 5001], b"rest");
        let group = frame([1, 0, 0x5E, 1, 2, 3], MAC_A, 0x88B5, &[2; 50]);
        let foreign = frame([2, 0, 0, 0, 0, 0xC], MAC_A, 0x88B5, &[3; 50]);
        for frame in [&best, &rest, &group, &foreign] {
            from.send(frame);
        }
        let of_group = std::iter::repeat_with(|| raws[3].receive()).find(|frame| *frame == group);
        assert_eq!(of_group.as_ref(), Some(&group), "and what the kernel sends to groups");
        assert_eq!([&raws[0], &raws[1], &raws[2]].map(Raw::receive), [rest, best.clone(), best]);
        let at_last = std::iter::repeat_with(|| raws[4].receive()).find(|frame| *frame == foreign);
        assert_eq!(at_last.as_ref(), Some(&foreign));
        let attr = FlowAttr { specs: vec![to_port(6000), FlowSpec::Drop], ..FlowAttr::default() };
        let _dropping = raws[1].qp.create_flow(&attr).unwrap();
        from.send(&udp(MAC_B, ips, [1, 6000], b"dropped"));
        until("it is dropped", || b.link_counters().flow_dropped == 1);
        raws[0].hears_nothing();
    });
}

/// Checksums are complete both ways.
#[test]
fn raw_packets_and_the_kernel() {
    in_namespace("raw_packets_and_the_kernel", || {
        let a = open(A);
        let mut raw = Raw::on(&a);
        raw.post(4);
        let port = FlowSpec::Udp {
            value: PortFilter { dst: 7000, src: 0 },
            mask: PortFilter { dst: u16::MAX, src: 0 },
        };
        let _flow = raw.flow([port]);
        let kernel = UdpSocket::bind("10.78.0.2:0").unwrap();
        kernel.set_read_timeout(Some(PATIENCE)).unwrap();
        kernel.send_to(b"from the kernel", "10.78.0.1:7000").unwrap();
        let frame = raw.receive();
        assert_eq!(frame[42..], *b"from the kernel");
        // UDP checksum with pseudo header
        let words = |bytes: &[u8]| -> u32 {
            let word =
                |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| (*b).into());
            bytes.chunks(2).map(word).sum()
        };
        let sum = words(&frame[26..34]) + 17 + (frame.len() - 34) as u32 + words(&frame[34..]);
        assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF, "{frame:02x?}");
        let mac: [u8; 6] = frame[6..12].try_into().unwrap();
        let port = kernel.local_addr().unwrap().port();
        raw.send(&udp(mac, [[10, 78, 0, 1], [10, 78, 0, 2]], [7000, port], b"and back"));
        let mut buffer = [0; 100];
        let (length, from) = kernel.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], from.to_string().as_str()),
            (&b"and back"[..], "10.78.0.1:7000")
        );
    });
}

/// One device's queue pairs need no wire.
#[test]
fn queue_pairs_of_one_device_hear_each_other_and_not_themselves() {
    in_namespace("queue_pairs_of_one_device_hear_each_other_and_not_themselves", || {
        let a = open(A);
        let (mut one, mut two) = (Raw::on(&a), Raw::on(&a));
        let _flows = [&one, &two].map(|raw| raw.flow([to(MAC_A)]));
        let _sniffer = one.kind(FlowKind::Sniffer);
        one.post(2);
        two.post(2);
        let sent = frame(MAC_A, MAC_A, 0x88B5, &[5; 50]);
        one.send(&sent).result.unwrap();
        assert_eq!(two.receive(), sent);
        one.hears_nothing();
        two.send(&sent).result.unwrap();
        assert_eq!(one.receive(), sent);
        two.hears_nothing();
    });
}

#[test]
fn transitions_and_refusals() {
    in_namespace("transitions_and_refusals", || {
        let a = open(A);
        let mut raw = Raw::in_reset(&a);
        let qp = raw.qp.clone();
        let frame = frame(MAC_B, MAC_A, 0x88B5, &[1; 50]);
        let send = SendWr::send(1, Data::inline(&frame));
        assert_eq!(
            qp.post_recv(&[RecvWr::new(1, [])]).unwrap_err().error,
            PostError::State(State::Reset)
        );
        qp.to_init(Init::default()).unwrap();
        assert_eq!(qp.to_rtr(Rtr::Ud), Err(ModifyError::WrongService(QpType::RawPacket)));
        raw.post(2);
        qp.to_rtr(Rtr::RawPacket).unwrap();
        assert_eq!(
            qp.post_send(std::slice::from_ref(&send)).unwrap_err().error,
            PostError::State(State::Rtr)
        );
        qp.to_rts(Rts::RawPacket).unwrap();
        let wrong = SendWr { op: SendOp::Send { immediate: None }, ..send.clone() };
        for wrong in [wrong.with_immediate([1; 4]), SendWr::local_invalidate(2, roce::RKey(1))] {
            let refused = qp.post_send(&[wrong]).unwrap_err().error;
            assert_eq!(refused, PostError::WrongOperation(QpType::RawPacket));
        }
        qp.to_sqd(true).unwrap();
        qp.post_send(std::slice::from_ref(&send)).unwrap();
        raw.hears_nothing();
        qp.to_rts(Rts::Resume).unwrap();
        assert_eq!(raw.complete().wr_id, 1);
        qp.to_error().unwrap();
        for _ in 0..2 {
            assert_eq!(raw.complete().result.unwrap_err().status, WcStatus::WrFlushErr);
        }
        qp.to_reset().unwrap();
        assert_eq!(qp.query().state, State::Reset);
        // neither an SRQ nor a spec that matches no frame
        let pd = a.alloc_pd().unwrap();
        let srq = pd.create_srq(SrqAttr { max_wr: 4, max_sge: 1 }).unwrap();
        let with_srq = QpInitAttr { srq: Some(srq), ..QpInitAttr::new(QpType::RawPacket, &raw.cq) };
        let refused = pd.create_qp(&with_srq).unwrap_err();
        assert_eq!(refused, ObjectError::Mismatch(ObjectMismatch::RawWithSrq));
        let attr =
            FlowAttr { kind: FlowKind::Sniffer, specs: vec![to(MAC_A)], ..FlowAttr::default() };
        assert!(matches!(qp.create_flow(&attr), Err(FlowError::Spec(_))));
        // with posted requests and a flow
        let mut posted = Raw::on(&a);
        posted.post(8);
        let flow = posted.flow([to(MAC_A)]);
        drop(posted);
        drop(flow);
    });
}

#[test]
fn an_interface_that_goes_away() {
    in_namespace("an_interface_that_goes_away", || {
        let a = open(A);

        let mut raw = Raw::on(&a);
        let _flow = raw.kind(FlowKind::Sniffer);
        raw.post(4);
        ip("link delete veth0");
        let end = Instant::now() + PATIENCE;
        while !matches!(a.poll_async_event(), Some(AsyncEvent::PortError)) {
            assert!(Instant::now() < end, "the port is down");
        }
        let gone = frame(MAC_B, MAC_A, 0x88B5, &[1; 50]);
        for _ in 0..3 {
            raw.send(&gone).result.unwrap();
        }
        assert!(a.link_counters().send_errors > 0);
        raw.qp.to_error().unwrap();
    });
}
