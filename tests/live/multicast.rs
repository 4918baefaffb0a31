use std::{
    collections::BTreeMap,
    net::IpAddr,
    num::NonZeroU32,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU8, Ordering},
    time::{Duration, Instant},
};

use roce::{
    AddressVector, AttachError, CompletionChannel, CompletionQueue, Context, Device, DropReason,
    McastError, MemoryRegion, NotifyKind, OpenOptions, QKey, QpInitAttr, QpType, Qpn, QueuePair,
    RecvWr, SendFlags, SendWr, UdDestination,
    link::Fabric,
    transport::wire::{FrameFields, IcrcMatch, Ident, NetHeader, verify_icrc},
};
use rustix::net::{AddressFamily, RecvFlags, SocketType};

use super::{ALL, PATIENCE, loopback, noise, own_address, own_test};

pub(super) struct Member {
    cq: CompletionQueue,
    channel: CompletionChannel,
    pub(super) qp: QueuePair,
    pub(super) memory: MemoryRegion,
}

impl Member {
    pub(super) const QKEY: QKey = QKey(0x1234);

    pub(super) fn on(context: &Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(64, Some(&channel)).unwrap();
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq)).unwrap();
        qp.to_init(roce::Init { qkey: Self::QKEY, ..roce::Init::default() }).unwrap();
        qp.to_rtr(roce::Rtr::Ud).unwrap();
        qp.to_rts(roce::Rts::Ud(roce::Psn::new(0))).unwrap();
        Self { cq, channel, qp, memory: pd.allocate(1 << 16, ALL).unwrap() }
    }

    pub(super) fn of(context: &Context, group: IpAddr) -> Self {
        let member = Self::on(context);
        member.qp.attach_mcast(group.into()).unwrap();
        let slot = |id: u64| member.memory.sge(id as usize * 4096..(id as usize + 1) * 4096);
        let receives: Vec<_> = (0..14).map(|id| RecvWr::new(id, [slot(id)])).collect();
        member.qp.post_recv(&receives).unwrap();
        member
    }

    pub(super) fn send(&self, group: IpAddr, count: u64, data: &[u8]) {
        let to =
            UdDestination::new(AddressVector::new(group.into(), 0), Qpn::MULTICAST, Self::QKEY);
        self.memory.write_at(60_000, data).unwrap();
        let wr = |id| {
            SendWr::send_to(id, to, self.memory.sge(60_000..60_000 + data.len()))
                .with_flags(SendFlags::empty())
        };
        self.qp.post_send(&(0..count).map(wr).collect::<Vec<_>>()).unwrap();
    }

    pub(super) fn receive(&self, least: usize) -> Vec<Vec<u8>> {
        let start = Instant::now();
        let mut received = Vec::new();
        let mut last = start;
        while received.len() < least && start.elapsed() < PATIENCE
            || last.elapsed() < Duration::from_millis(20)
        {
            if let Some(wc) = self.cq.poll_one() {
                let at = wc.wr_id as usize * 4096;
                let ok = wc.result.unwrap();
                assert!(ok.grh.is_some() && ok.src_qp.is_some());
                received.push(self.memory.to_vec(at + 40..at + ok.byte_len as usize).unwrap());
                last = Instant::now();
            }
        }
        received
    }
}

pub(super) fn own_group(v6: bool) -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    if v6 {
        [0xFF15, 0, 0, 0, 0, 0x77, u16::from_be_bytes([high, low]), last.into()].into()
    } else {
        [239, high, low, last].into()
    }
}

/// Separate devices, as of several programs; the sender's copy comes back through the system.
pub(super) fn all_members_receive(contexts: &[Context], group: IpAddr) {
    let sender = Member::of(&contexts[0], group);
    let mut others: Vec<_> = contexts.iter().map(|context| Member::of(context, group)).collect();
    others.push(sender);
    let outsider = Member::on(&contexts[0]);
    let sender = others.last().unwrap();
    let data = noise(1000, 77);
    sender.send(group, 3, &data);
    for member in &others {
        let received = member.receive(3);
        let lengths: Vec<_> = received.iter().map(Vec::len).collect();
        assert!(
            received == vec![data.clone(); 3],
            "three datagrams, each once, not {lengths:?} to {group}"
        );
    }
    outsider.send(group, 1, &data);
    for member in &others {
        assert_eq!(member.receive(1).len(), 1);
    }
    for context in contexts {
        let counters = context.counters();
        assert_eq!(
            counters.icrc_exact + counters.icrc_solved,
            4,
            "four packets, whatever number of members"
        );
        assert_eq!(counters.multicast_packets, 4);
        assert_eq!(counters.dropped(DropReason::NotAttached), 0);
    }
    // The link's descriptors include groups joined later.
    let sleeper = Member::of(&contexts[0], group);
    sleeper.cq.req_notify(NotifyKind::Next);
    outsider.send(group, 1, &data);
    sleeper.channel.wait(Some(PATIENCE)).unwrap();
    for member in others.iter().chain([&sleeper]) {
        assert_eq!(member.receive(1).len(), 1);
    }
    drop(sleeper);
    // after leaving
    let left = others.remove(0);
    left.qp.detach_mcast(group.into()).unwrap();
    assert!(matches!(left.qp.detach_mcast(group.into()), Err(McastError::NotAttached(_))));
    others.last().unwrap().send(group, 1, &data);
    assert!(others.iter().all(|member| member.receive(1).len() == 1));
    assert_eq!(left.receive(0).len(), 0);
}

#[test]
fn a_group_over_ipv4() {
    let contexts = [(); 3].map(|()| loopback(OpenOptions::default()));
    all_members_receive(&contexts, own_group(false));
}

#[test]
fn a_group_is_left_with_its_last_member() {
    let (a, b) = (loopback(OpenOptions::default()), loopback(OpenOptions::default()));
    let group = own_group(false);
    let sender = Member::on(&a);
    for leaves_by in ["detach", "drop"] {
        let (one, two) = (Member::of(&b, group), Member::of(&b, group));
        drop(one);
        sender.send(group, 1, b"still there");
        assert_eq!(two.receive(1).len(), 1);
        match leaves_by {
            "detach" => two.qp.detach_mcast(group.into()).unwrap(),
            _ => drop(two),
        }
        let before = b.counters().received_packets;
        sender.send(group, 5, b"no member");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(b.counters().received_packets, before, "{leaves_by}");
    }
}

#[test]
fn what_cannot_be_joined() {
    let context = loopback(OpenOptions::default());
    let member = Member::on(&context);
    let error = member.qp.attach_mcast(own_group(true).into()).unwrap_err();
    assert!(
        matches!(error, AttachError::Join { .. }),
        "the loopback device has no IPv6 address: {error}"
    );
    let group = own_group(false);
    member.qp.attach_mcast(group.into()).unwrap();
    assert!(matches!(
        member.qp.attach_mcast(own_address().into()),
        Err(AttachError::Adapter(McastError::NotMulticast(_)))
    ));
    // a refused attach leaves nothing
    assert!(matches!(
        member.qp.detach_mcast(own_group(true).into()),
        Err(McastError::NotAttached(_))
    ));
}

fn packet_socket() -> OwnedFd {
    let ipv4 =
        rustix::net::Protocol::from_raw(NonZeroU32::new(u32::from(0x0800u16.to_be())).unwrap());
    rustix::net::socket(AddressFamily::PACKET, SocketType::DGRAM, Some(ipv4)).unwrap()
}

/// A run's multicast packets have identifications 0, 1, 2 and "don't fragment", as their ICRC
/// assumes. UDP sockets hide both.
fn check_identifications(wire: &OwnedFd) {
    let mut seen = BTreeMap::<u16, usize>::new();
    let mut packet = [0; 65_536];
    while let Ok((length, _)) = rustix::net::recv(wire, &mut packet[..], RecvFlags::DONTWAIT) {
        // a datagram of `all_members_receive`: IP, UDP, BTH, DETH, 1,000 bytes, ICRC
        let Some(bytes) = packet[..length]
            .strip_prefix(&[0x45])
            .filter(|bytes| bytes.len() + 1 == 20 + 8 + 12 + 8 + 1000 + 4)
        else {
            continue;
        };
        let at = |n: usize| bytes[n - 1];
        let id = u16::from_be_bytes([at(4), at(5)]);
        let net = NetHeader {
            src: [at(12), at(13), at(14), at(15)].into(),
            dst: [at(16), at(17), at(18), at(19)].into(),
            src_port: u16::from_be_bytes([at(20), at(21)]),
            traffic_class: at(1),
            hop_limit: at(8),
            ident: Ident::Known { id, dont_fragment: at(6) == 0x40 },
            frame: FrameFields::default(),
        };
        assert_eq!(verify_icrc(&net, &bytes[27..]), Some(IcrcMatch::Exact), "{net:?}");
        assert!(net.dst.is_multicast());
        assert_eq!(net.hop_limit, 64);
        *seen.entry(id).or_default() += 1;
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
}

/// Packets cross a wire, and the system returns the sender's copy. Skipped without namespaces.
#[test]
fn groups_between_interfaces() {
    const INSIDE: &str = "ROCE_TEST_NAMESPACE";
    const READY: &str = "the namespace is ready";
    if std::env::var_os(INSIDE).is_some() {
        let wire = packet_socket();
        for addresses in [["10.77.1.1", "10.77.2.1"], ["fd77:1::1", "fd77:2::1"]] {
            let contexts = addresses.map(|ip| {
                Device::at(ip.parse().unwrap()).unwrap().open(OpenOptions::default()).unwrap()
            });
            all_members_receive(&contexts, own_group(addresses[0].contains(':')));
        }
        check_identifications(&wire);
        // link-local groups need an interface
        let link_local = [0xFF02, 0, 0, 0, 0, 0, 0x77, 0x77].into();
        let contexts = ["roce_veth0", "roce_veth1"]
            .map(|name| Device::named(name).unwrap().open(OpenOptions::default()).unwrap());
        let sgid = |context: &Context| {
            context.gids().iter().position(|gid| gid.to_ip().is_ipv6()).unwrap() as u16
        };
        assert!(contexts.iter().all(|context| context.gids().len() == 3 && sgid(context) == 0));
        all_members_receive(&contexts, link_local);
        return;
    }
    let setup = format!(
        "set -e
        ip link set lo up
        ip link add veth0 type veth peer name veth1
        n=1
        for i in veth0 veth1; do
            echo 1 > /proc/sys/net/ipv4/conf/$i/accept_local
            echo 0 > /proc/sys/net/ipv4/conf/$i/rp_filter
            ip address add 10.77.$n.1/24 dev $i
            ip address add fd77:$n::1/64 dev $i nodad
            ip address add fe80::$n/64 dev $i nodad
            echo 1 > /proc/sys/net/ipv6/conf/$i/addr_gen_mode
            ip link set $i up gso_max_segs 1 # what a socket sends at once is cut up before the wire
            n=2
        done
        echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
        # a wire that the kernel has not noticed yet loses what is sent
        for i in veth0 veth1; do
            until ip link show $i | grep -q 'state UP'; do sleep 0.01; done
        done
        echo {READY}
        exec \"$0\" --exact {}",
        own_test::named("live::multicast::groups_between_interfaces")
    );
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--map-root-user", "--net", "sh", "-c", &setup])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1");
    let Ok(output) = command.output() else { return };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!out.contains(READY) || output.status.success(), "{out}{err}");
}

#[test]
fn a_group_on_a_fabric_of_the_process() {
    let fabric = Fabric::new("delay 20us".parse().unwrap(), 3);
    let open = |ip: &str| fabric.open(ip.parse().unwrap(), OpenOptions::default()).unwrap();
    let bystander = open("10.0.0.9");
    all_members_receive(&["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(open), own_group(false));
    all_members_receive(&["fd00::1", "fd00::2", "fd00::3"].map(open), own_group(true));
    assert_eq!(bystander.counters().received_packets, 0, "who has not joined gets nothing");
}
