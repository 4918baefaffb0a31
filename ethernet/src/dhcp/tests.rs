use smoltcp::wire::{DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress};

use super::*;

const MAC: MacAddr = MacAddr(2, 0, 0, 0, 0, 9);
const OTHER: MacAddr = MacAddr(2, 0, 0, 0, 0, 8);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SECOND_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 57);
const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const SECOND: Duration = Duration::from_secs(1);
use DhcpMessageType::{Ack, Decline, Discover, Nak, Offer, Release, Request as Ask};

#[derive(Clone, PartialEq, Eq, Debug)]
struct Sent {
    kind: DhcpMessageType,
    to: Option<Ipv4Addr>,
    from: Ipv4Addr,
    client: Ipv4Addr,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    secs: u16,
}

struct Host {
    client: Client,
    now: Instant,
    counters: FrameCounters,
    xid: u32,
    sent: Vec<Sent>,
    probes: usize,
    leases: Vec<Option<Lease>>,
}

#[derive(Clone)]
struct Says {
    kind: DhcpMessageType,
    address: Ipv4Addr,
    server: Option<Ipv4Addr>,
    mac: MacAddr,
    xid: Option<u32>,
    seconds: Option<u32>,
    mask: Option<Ipv4Addr>,
    more: Vec<(u8, Vec<u8>)>,
}

fn says(kind: DhcpMessageType) -> Says {
    Says {
        kind,
        address: ADDRESS,
        server: Some(SERVER),
        mac: MAC,
        xid: None,
        seconds: Some(3600),
        mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        more: Vec::new(),
    }
}

impl Says {
    fn bytes(&self, xid: u32) -> Vec<u8> {
        let more: Vec<_> =
            self.more.iter().map(|(kind, data)| DhcpOption { kind: *kind, data }).collect();
        let repr = DhcpRepr {
            message_type: self.kind,
            transaction_id: self.xid.unwrap_or(xid),
            secs: 0,
            client_hardware_address: EthernetAddress(self.mac.octets()),
            client_ip: NONE,
            your_ip: self.address,
            server_ip: NONE,
            router: None,
            subnet_mask: self.mask,
            relay_agent_ip: NONE,
            broadcast: false,
            requested_ip: None,
            client_identifier: None,
            server_identifier: self.server,
            parameter_request_list: None,
            dns_servers: None,
            max_size: None,
            lease_duration: self.seconds,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &more,
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).unwrap();
        bytes
    }
}

impl Host {
    fn new() -> Self {
        Self::with_seed(7)
    }

    fn with_seed(seed: u8) -> Self {
        let now = Instant::from_nanos(1);
        let mut host = Self {
            client: Client::new(MAC, [seed; 32], now),
            now,
            counters: FrameCounters::default(),
            xid: 0,
            sent: Vec::new(),
            probes: 0,
            leases: Vec::new(),
        };
        host.advance(Duration::ZERO);
        host
    }

    fn bound(seconds: u32) -> Self {
        let mut host = Self::new();
        host.hear(&Says { seconds: Some(seconds), ..says(Offer) });
        host.hear(&Says { seconds: Some(seconds), ..says(Ack) });
        host.advance(SECOND);
        assert_eq!(host.leases.len(), 1);
        host.sent.clear();
        host.leases.clear();
        host
    }

    fn attend(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                Output::Send { to, from, bytes } => {
                    assert!(bytes.len() >= 300, "what BOOTP takes");
                    let packet = DhcpPacket::new_checked(&bytes[..]).unwrap();
                    let repr = DhcpRepr::parse(&packet).unwrap();
                    let mac = EthernetAddress(MAC.octets());
                    assert_eq!((repr.client_hardware_address, repr.broadcast), (mac, false));
                    assert_eq!(repr.client_identifier, Some(mac));
                    self.xid = repr.transaction_id;
                    self.sent.push(Sent {
                        kind: repr.message_type,
                        to,
                        from,
                        client: repr.client_ip,
                        requested: repr.requested_ip,
                        server: repr.server_identifier,
                        secs: repr.secs,
                    });
                }
                Output::Probe(address) => {
                    assert_eq!(Some(address), self.client.checking());
                    self.probes += 1;
                }
                Output::Lease(lease) => self.leases.push(lease),
            }
        }
    }

    fn advance(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while self.client.poll_timeout() <= end {
            self.now = self.now.max(self.client.poll_timeout());
            self.client.handle_timeout(self.now, &mut self.counters);
            assert!(self.client.poll_timeout() > self.now, "what was due has been done");
            self.attend();
        }
        self.now = end;
    }

    fn hear(&mut self, says: &Says) {
        self.hear_bytes(&says.bytes(self.xid));
    }

    fn hear_bytes(&mut self, bytes: &[u8]) {
        self.client.handle_message(self.now, bytes, &mut self.counters);
        self.attend();
    }

    fn kinds(&self) -> Vec<DhcpMessageType> {
        self.sent.iter().map(|sent| sent.kind).collect()
    }

    fn lease(&self) -> &Lease {
        self.leases.last().unwrap().as_ref().unwrap()
    }

    fn next(&mut self) -> f64 {
        let (before, start) = (self.sent.len(), self.now);
        while self.sent.len() == before {
            let due = self.client.poll_timeout();
            self.advance(due.since(self.now));
        }
        self.now.since(start).as_secs_f64()
    }
}

fn broadcast(kind: DhcpMessageType) -> Sent {
    Sent { kind, to: None, from: NONE, client: NONE, requested: None, server: None, secs: 0 }
}

#[test]
fn an_address_is_offered_asked_for_granted_and_probed() {
    let mut host = Host::new();
    assert_eq!(host.sent, [broadcast(Discover)]);
    host.advance(SECOND / 10);
    host.hear(&says(Offer));
    let asked = Sent { requested: Some(ADDRESS), server: Some(SERVER), ..broadcast(Ask) };
    assert_eq!(host.sent[1..], [asked]);
    let asked_at = host.now;
    host.advance(SECOND / 10);
    host.hear(&Says { more: vec![(3, vec![10, 0, 0, 254, 10, 0, 0, 253])], ..says(Ack) });
    assert_eq!((host.client.checking(), host.probes), (Some(ADDRESS), 1));
    host.advance(PROBE_INTERVAL * 3 - SECOND / 1000);
    assert_eq!((host.leases.len(), host.probes), (0, 3), "not before it is known to be free");
    host.advance(SECOND / 1000);
    assert_eq!((host.leases.len(), host.probes, host.client.checking()), (1, 3, None));
    let lease = host.lease();
    assert_eq!(lease.address, Prefix { address: ADDRESS.into(), length: 24 });
    assert_eq!((lease.server, lease.until), (SERVER, asked_at.plus(3600 * SECOND)));
    let far = [192, 0, 2, 1].into();
    let default = Prefix { address: NONE.into(), length: 0 };
    assert_eq!(lease.route(far), Some((default, [10, 0, 0, 254].into())), "the first router");
    assert_eq!(host.counters, FrameCounters { dhcp_leases: 1, ..Default::default() });
}

#[test]
fn retransmissions_without_a_response_back_off() {
    for seed in 0..20 {
        let mut host = Host::with_seed(seed);
        let xid = host.xid;
        for wanted in [1., 2., 4., 8., 16., 32., 64., 64., 64.] {
            let waited = host.next();
            assert!((wanted * 0.75..=wanted * 1.25).contains(&waited), "{waited} for {wanted}");
            assert_eq!((host.sent.last().unwrap().kind, host.xid), (Discover, xid));
        }
        let secs = host.sent.iter().map(|sent| sent.secs);
        assert!(secs.is_sorted() && host.sent.last().unwrap().secs > 150);
        assert_eq!(host.client.error(), LeaseError::Unanswered);
    }
    let first = |seed| Host::with_seed(seed).next();
    assert!(first(1) != first(2) && first(1) == first(1), "chance is an argument");
}

#[test]
fn an_offer_that_is_not_confirmed_is_given_up_after_four_requests() {
    let mut host = Host::new();
    host.hear(&says(Offer));
    let xid = host.xid;
    for _ in 0..4 {
        host.next();
    }
    let asked: Vec<_> = host.sent.iter().skip(1).take(4).collect();
    assert!(asked.iter().all(|sent| sent.kind == Ask && sent.server == Some(SERVER)));
    assert_eq!(host.kinds(), [Discover, Ask, Ask, Ask, Ask, Discover]);
    assert_eq!(host.client.error(), LeaseError::Unconfirmed(ADDRESS));
    assert!(host.xid != xid, "what is said to that is too late now");
    host.hear(&Says { xid: Some(xid), ..says(Ack) });
    assert_eq!((host.counters.not_for_us, host.leases.len()), (1, 0));
}

#[test]
fn the_first_offer_counts_and_only_its_server_can_confirm_it() {
    let mut host = Host::new();
    host.hear(&says(Offer));
    host.hear(&Says { server: Some(SECOND_SERVER), ..says(Offer) });
    host.hear(&Says { server: Some(SECOND_SERVER), ..says(Ack) });
    host.hear(&Says { server: Some(SECOND_SERVER), ..says(Nak) });
    host.hear(&Says { address: Ipv4Addr::new(10, 0, 0, 58), ..says(Ack) });
    assert_eq!((host.counters.dhcp_unused, host.client.checking()), (4, None));
    host.hear(&says(Ack));
    assert_eq!(host.client.checking(), Some(ADDRESS));
}

#[test]
fn messages_of_another_exchange_or_host_are_not_listened_to() {
    let mut host = Host::new();
    let other = host.xid ^ 1;
    host.hear(&Says { xid: Some(other), ..says(Offer) });
    host.hear(&Says { mac: OTHER, ..says(Offer) });
    assert_eq!((host.kinds(), host.counters.not_for_us), (vec![Discover], 2));
}

#[test]
fn an_address_that_somebody_has_is_declined_and_asked_for_again_after_ten_seconds() {
    let mut host = Host::new();
    host.hear(&says(Offer));
    host.hear(&says(Ack));
    host.client.decline(host.now, OTHER, &mut host.counters);
    host.attend();
    let declined = Sent { requested: Some(ADDRESS), server: Some(SERVER), ..broadcast(Decline) };
    assert_eq!(host.sent[2..], [declined]);
    assert_eq!(host.client.error(), LeaseError::InUse(ADDRESS, OTHER));
    let waited = host.next();
    assert!((10. ..11.).contains(&waited), "{waited}");
    assert_eq!(host.kinds(), [Discover, Ask, Decline, Discover]);
    assert_eq!((host.leases.len(), host.counters.dhcp_declined), (0, 1));
    // later claims
    let mut host = Host::bound(3600);
    host.client.decline(host.now, OTHER, &mut host.counters);
    assert_eq!((host.client.poll(), host.counters.dhcp_declined), (None, 0));
}

#[test]
fn at_half_the_time_the_server_is_asked_and_at_seven_eighths_everybody() {
    let mut host = Host::bound(3600);
    let granted_at = host.now;
    assert!((1798. ..1800.).contains(&host.next()));
    let to_server = Sent { to: Some(SERVER), from: ADDRESS, client: ADDRESS, ..broadcast(Ask) };
    assert_eq!(host.sent, std::slice::from_ref(&to_server), "from the address that it has");
    // half of the rest, at least 1 min
    let times: Vec<_> = (0..5).map(|_| host.next().round()).collect();
    assert_eq!(times, [675., 338., 169., 84., 60.]);
    assert!(host.sent.iter().all(|sent| sent.to == Some(SERVER)));
    let waited = host.next();
    assert!(waited < 60.);
    let at = host.now.since(granted_at).as_secs_f64();
    assert!((3149. ..3150.).contains(&at), "{at}");
    let rebinding = host.sent.last().unwrap();
    assert_eq!(*rebinding, Sent { to: None, ..to_server });
    host.advance(3598 * SECOND - host.now.since(granted_at));
    assert!(host.leases.is_empty());
    host.advance(2 * SECOND);
    assert_eq!(host.leases, [None], "the time is over");
    assert_eq!(host.counters.dhcp_lost, 1);
    host.next();
    assert_eq!(*host.sent.last().unwrap(), broadcast(Discover));
}

#[test]
fn more_time_counts_from_the_first_request_for_it() {
    for (rebinding, server) in [(false, SERVER), (true, SERVER), (true, SECOND_SERVER)] {
        let mut host = Host::bound(120);
        host.advance(if rebinding { 106 } else { 60 } * SECOND);
        let asked_at = host.now;
        assert_eq!(host.sent.last().unwrap().to.is_none(), rebinding);
        host.advance(SECOND);
        let ack = Says { server: Some(server), seconds: Some(200), ..says(Ack) };
        host.hear(&ack);
        let lease = host.lease();
        assert_eq!((lease.server, host.probes), (server, 3), "it is not probed again");
        let until = lease.until.since(asked_at).as_secs_f64();
        assert!((198. ..=200.).contains(&until), "{until}");
        host.sent.clear();
        host.advance(96 * SECOND);
        assert_eq!(host.sent.len(), 0);
        host.advance(3 * SECOND);
        assert_eq!(host.sent[0].to, Some(server), "and asks again at its half");
    }
}

#[test]
fn only_its_server_renews_and_nobody_grants_another_address() {
    let mut host = Host::bound(120);
    host.advance(60 * SECOND);
    for wrong in [
        Says { server: Some(SECOND_SERVER), ..says(Ack) },
        Says { address: Ipv4Addr::new(10, 0, 0, 58), ..says(Ack) },
        Says { server: Some(SECOND_SERVER), ..says(Nak) },
        says(Offer),
    ] {
        host.hear(&wrong);
    }
    assert_eq!((host.counters.dhcp_unused, host.leases.len()), (4, 0));
}

#[test]
fn a_refusal_ends_the_lease_at_once() {
    for (seconds, server) in [(60, SERVER), (106, SECOND_SERVER)] {
        let mut host = Host::bound(120);
        host.advance(seconds * SECOND);
        host.hear(&Says { server: Some(server), ..says(Nak) });
        assert_eq!(host.leases, [None]);
        assert_eq!((host.counters.dhcp_refused, host.counters.dhcp_lost), (1, 1));
        assert!(host.next() < 1.3);
        assert_eq!(*host.sent.last().unwrap(), broadcast(Discover));
    }
}

/// A server that offers and refuses gets a request a minute; a server of the shortest lease gets a
/// request per 5 s.
#[test]
fn no_server_has_it_send_without_end() {
    let mut host = Host::new();
    for _ in 0..200 {
        if host.client.poll_timeout() == host.now {
            host.advance(Duration::ZERO);
        }
        host.hear(&says(Offer));
        host.hear(&says(Nak));
        assert_eq!(host.client.error(), LeaseError::Refused(ADDRESS));
        let due = host.client.poll_timeout();
        host.advance(due.since(host.now));
    }
    assert_eq!(host.counters.dhcp_refused, 200);
    assert!(host.now.since(Instant::ZERO) > 190 * 48 * SECOND);

    let mut host = Host::bound(message::LEAST);
    for _ in 0..100 {
        host.next();
        let times = vec![(58, vec![0, 0, 0, 5]), (59, vec![0, 0, 0, 6])];
        host.hear(&Says { seconds: Some(message::LEAST), more: times, ..says(Ack) });
    }
    assert!(host.now.since(Instant::ZERO) >= 490 * SECOND);
}

/// The process was stopped, or the machine slept.
#[test]
fn a_lease_that_has_run_out_meanwhile_is_not_used_any_more() {
    let mut host = Host::bound(120);
    let late = host.now.plus(1000 * SECOND);
    host.client.handle_timeout(late, &mut host.counters);
    host.now = late;
    host.attend();
    assert_eq!((&host.leases[..], host.sent.len()), (&[None][..], 0));
    // The renewal time has passed.
    let mut host = Host::bound(120);
    let late = host.now.plus(110 * SECOND);
    host.client.handle_timeout(late, &mut host.counters);
    host.attend();
    let everybody = Sent { from: ADDRESS, client: ADDRESS, ..broadcast(Ask) };
    assert_eq!((host.leases.len(), &host.sent[..]), (0, &[everybody][..]));
}

#[test]
fn what_is_closed_gives_its_address_back() {
    let mut host = Host::bound(3600);
    host.client.release(host.now, &mut host.counters);
    host.attend();
    let released = Sent {
        to: Some(SERVER),
        from: ADDRESS,
        client: ADDRESS,
        server: Some(SERVER),
        ..broadcast(Release)
    };
    assert_eq!((&host.sent[..], &host.leases[..]), (&[released][..], &[None][..]));
    let mut host = Host::new();
    host.client.release(host.now, &mut host.counters);
    host.attend();
    assert_eq!(host.kinds(), [Discover]);
}

#[test]
fn the_end_of_the_longest_lease_can_be_represented() {
    let host = Host::bound(u32::MAX);
    let due = host.client.poll_timeout().since(host.now).as_secs();
    assert!(due > 68 * 365 * 24 * 3600, "{due}");
}

#[test]
fn what_a_server_must_not_say_is_counted_and_dropped() {
    let with = |kind, data: &[u8]| Says { more: vec![(kind, data.to_vec())], ..says(Offer) };
    let at = |address: [u8; 4]| Says { address: address.into(), ..says(Offer) };
    let mask = |mask: [u8; 4]| Says { mask: Some(mask.into()), ..says(Offer) };
    for (index, wrong) in [
        at([0; 4]),
        at([127, 0, 0, 1]),
        at([224, 0, 0, 1]),
        at([255; 4]),
        at([10, 0, 0, 0]),
        at([10, 0, 0, 255]),
        mask([255, 0, 255, 0]),
        mask([0; 4]),
        Says { server: None, ..says(Offer) },
        Says { server: Some(NONE), ..says(Offer) },
        Says { seconds: None, ..says(Offer) },
        Says { seconds: Some(message::LEAST - 1), ..says(Offer) },
        with(3, &[10, 0, 0]),
        with(3, &[10, 0, 0, 1, 10]),
        with(51, &[0, 1]),
        with(54, &[10, 0, 0, 1, 0]),
        with(58, &[0; 5]),
        with(121, &[33, 10, 0, 0, 0, 0, 10, 0, 0, 1]),
        with(121, &[24, 10, 0, 0, 10, 0, 0]),
        with(121, &[0, 224, 0, 0, 1]),
        with(53, &[2, 2]),
        Says { server: None, ..says(Nak) },
    ]
    .into_iter()
    .enumerate()
    {
        let mut host = Host::new();
        host.hear(&wrong);
        assert_eq!((host.counters.dhcp_bad, host.sent.len()), (1, 1), "{index}");
        assert_eq!(host.client.error(), LeaseError::Unusable);
    }
    // A message cut anywhere is read, counted, or equals the whole message.
    let host = Host::new();
    let whole = says(Offer).bytes(host.xid);
    for length in 0..whole.len() {
        let mut host = Host::new();
        host.hear_bytes(&whole[..length]);
        let option_ends = host.sent.len() == 2;
        assert_eq!(host.counters.dhcp_bad, u64::from(!option_ends), "{length}");
    }
    let mut endless = whole.clone();
    *endless.last_mut().unwrap() = 12; // option 12 (host name) without a length
    let mut host = Host::new();
    host.hear_bytes(&endless);
    assert_eq!((host.counters.dhcp_bad, host.sent.len()), (1, 1));
}

#[test]
fn times_of_a_server_count_if_they_can_be() {
    let times = |t1: u32, t2: u32| {
        let more = vec![(58, t1.to_be_bytes().to_vec()), (59, t2.to_be_bytes().to_vec())];
        let mut host = Host::new();
        host.hear(&says(Offer));
        host.hear(&Says { more, ..says(Ack) });
        host.advance(SECOND);
        host.sent.clear();
        let renewed = host.next();
        let mut rebound = renewed;
        while host.sent.last().unwrap().to.is_some() {
            rebound += host.next();
        }
        (renewed.ceil() as u32 + 1, rebound.ceil() as u32 + 1)
    };
    assert_eq!(times(100, 200), (100, 200));
    for (t1, t2) in [(200, 100), (100, 3600), (0, 100), (4000, 5000), (u32::MAX, u32::MAX)] {
        assert_eq!(times(t1, t2), (1800, 3150), "{t1} {t2}");
    }
}

#[test]
fn classless_routes_take_the_place_of_routers() {
    let mut host = Host::new();
    host.hear(&says(Offer));
    let routes = [
        &[0, 10, 0, 0, 2][..],
        &[8, 172, 10, 0, 0, 3],
        &[22, 172, 16, 0, 10, 0, 0, 4],
        &[24, 192, 0, 2, 0, 0, 0, 0],
    ]
    .concat();
    // split by RFC 3396
    let (first, second) = routes.split_at(9);
    let more = vec![(3, vec![10, 0, 0, 254]), (121, first.to_vec()), (121, second.to_vec())];
    host.hear(&Says { more, ..says(Ack) });
    host.advance(SECOND);
    let hop = |to: [u8; 4]| host.lease().route(to.into()).map(|(_, hop)| hop);
    assert_eq!(hop([8, 8, 8, 8]), Some([10, 0, 0, 2].into()));
    assert_eq!(hop([172, 1, 0, 1]), Some([10, 0, 0, 3].into()));
    assert_eq!(hop([172, 16, 3, 1]), Some([10, 0, 0, 4].into()));
    assert_eq!(hop([192, 0, 2, 7]), Some([192, 0, 2, 7].into()), "on the link");
    let mut host = Host::new();
    host.hear(&says(Offer));
    let many = (0..50).map(|_| (121, vec![0, 10, 0, 0, 2]));
    host.hear(&Says { more: many.collect(), ..says(Ack) });
    host.advance(SECOND);
    assert_eq!(host.lease().routes.len(), 32);
}

#[test]
fn without_a_mask_the_network_is_that_of_its_class() {
    for (address, length) in [([10, 1, 2, 3], 8), ([172, 16, 0, 9], 16), ([192, 168, 0, 9], 24)] {
        let mut host = Host::new();
        for kind in [Offer, Ack] {
            host.hear(&Says { mask: None, address: address.into(), ..says(kind) });
        }
        host.advance(SECOND);
        assert_eq!(host.lease().address.length, length);
    }
    // Networks of two addresses or a single address have only hosts.
    for mask in [[255, 255, 255, 254], [255; 4]] {
        let mut host = Host::new();
        let address = Ipv4Addr::new(10, 0, 0, 0);
        for kind in [Offer, Ack] {
            host.hear(&Says { mask: Some(mask.into()), address, ..says(kind) });
        }
        host.advance(SECOND);
        assert_eq!(host.leases.len(), 1);
    }
}
