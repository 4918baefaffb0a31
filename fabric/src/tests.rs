use std::time::Duration;

use roce_transport::wire::FrameFields;

use super::*;

fn net() -> NetHeader {
    NetHeader {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 49152,
        traffic_class: 2,
        hop_limit: 64,
        ident: Ident::Known { id: 3, dont_fragment: true },
        frame: FrameFields::default(),
    }
}

/// Sends `count` datagrams, 1 µs apart.
fn run(mut network: Network, count: u32) -> Vec<(u64, Delivery)> {
    for i in 0..count {
        network.send(Instant::from_nanos(u64::from(i) * 1000), &net(), &i.to_be_bytes());
    }
    arrivals(&mut network)
}

#[test]
fn a_perfect_network_keeps_everything_and_its_order() {
    let arrived = run(Network::new(Conditions::default(), 1), 100);
    assert!(arrived.iter().enumerate().all(|(i, (at, datagram))| {
        *at == i as u64 * 1000
            && datagram.net == net()
            && datagram.bytes == (i as u32).to_be_bytes()
    }));
    assert_eq!(arrived.len(), 100);
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let conditions = Conditions {
        loss: 0.1,
        duplication: 0.1,
        reordering: 0.1,
        corruption: 0.1,
        ecn: 0.1,
        delay: Duration::from_micros(10),
        jitter: Duration::from_micros(3),
        ..Conditions::default()
    };
    let of = |seed| run(Network::new(conditions, seed), 1000);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn probabilities_are_met() {
    let share = |conditions, of: fn(&[(u64, Delivery)]) -> usize| {
        let arrived = run(Network::new(conditions, 7), 10_000);
        (800..1200).contains(&of(&arrived)) || panic!("{} of 10,000", of(&arrived))
    };
    let base = Conditions::default();
    assert!(share(Conditions { loss: 0.1, ..base }, |all| 10_000 - all.len()));
    assert!(share(Conditions { duplication: 0.1, ..base }, |all| all.len() - 10_000));
    assert!(share(Conditions { ecn: 0.1, ..base }, |all| all
        .iter()
        .filter(|(_, d)| d.net.traffic_class == 3)
        .count()));
    assert!(share(Conditions { corruption: 0.1, ..base }, |all| {
        all.iter().filter(|(_, d)| d.bytes != (d.number as u32).to_be_bytes()).count()
    }));
    assert!(share(Conditions { reordering: 0.1, ..base }, |all| {
        all.iter().filter(|(at, d)| *at != d.number * 1000).count()
    }));
}

#[test]
fn the_identification_can_be_hidden() {
    for (identification, ident) in [
        (Identification::Known, net().ident),
        (Identification::Guessed, Ident::Likely(3)),
        (Identification::Hidden, Ident::Likely(0)),
    ] {
        let mut network = Network::new(Conditions::default(), 1);
        network.set_identification(identification);
        network.send(Instant::ZERO, &net(), b"");
        assert_eq!(network.poll_deliver(Instant::ZERO).unwrap().net.ident, ident);
    }
}

/// Payload of 125 bytes on the wire: 1 µs at 1 Gbit/s.
const LENGTH: usize = 125 - 66;

fn through(plan: &str) -> Network {
    Network::with_plan(plan.parse().unwrap(), 1)
}

fn arrivals(network: &mut Network) -> Vec<(u64, Delivery)> {
    let mut arrived = Vec::new();
    while let Some(due) = network.poll_timeout() {
        arrived.extend(network.poll_deliver(due).map(|datagram| (due.as_nanos(), datagram)));
    }
    arrived
}

fn times(network: &mut Network) -> Vec<u64> {
    arrivals(network).into_iter().map(|(at, _)| at).collect()
}

#[test]
fn a_port_has_a_rate() {
    let mut network = through("rate 1gbit, delay 5us");
    let other = NetHeader { dst: [10, 0, 0, 3].into(), ..net() };
    for _ in 0..3 {
        network.send(Instant::ZERO, &net(), &[0; LENGTH]);
    }
    network.send(Instant::ZERO, &other, &[0; LENGTH]);
    assert_eq!(times(&mut network), [6000, 6000, 7000, 8000], "each destination has a port");
    let mut shared = through("rate 1gbit shared, delay 5us");
    shared.send(Instant::ZERO, &net(), &[0; LENGTH]);
    shared.send(Instant::ZERO, &other, &[0; LENGTH]);
    assert_eq!(times(&mut shared), [6000, 7000]);
    let v6 = |n| [0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n].into();
    let mut network = through("rate 1gbit");
    let over_ipv6 = NetHeader { src: v6(1), dst: v6(2), ..net() };
    network.send(Instant::ZERO, &over_ipv6, &[0; LENGTH - 20]);
    assert_eq!(times(&mut network), [1000], "its header is 20 bytes longer");
}

#[test]
fn a_full_port_drops_what_comes() {
    let mut network = through("rate 1gbit, queue 250b");
    let mut lost = Vec::new();
    for micros in [0, 0, 0, 1, 1] {
        let now = Instant::from_nanos(micros * 1000);
        lost.push(network.send(now, &net(), &[0; LENGTH]).lost);
    }
    assert_eq!(lost, [false, false, true, false, true]);
    assert_eq!(times(&mut network), [1000, 2000, 3000]);
    let counters = QueueCounters { passed: 3, dropped: 2, marked: 0, longest: 250 };
    assert_eq!((network.port(Some(net().dst)), network.port(None)), (counters, counters));
    assert_eq!(network.port(Some(net().src)), QueueCounters::default());
}

#[test]
fn copies_and_losses_at_a_port() {
    let mut network = through("rate 1gbit, queue 375b, duplicate 100%");
    let both = |network: &mut Network| {
        let verdict = network.send(Instant::ZERO, &net(), &[0; LENGTH]);
        (verdict.lost, verdict.copy.is_some())
    };
    let fates = [both(&mut network), both(&mut network), both(&mut network)];
    assert_eq!(fates, [(false, true), (false, false), (true, true)]);
    assert_eq!((arrivals(&mut network).len(), network.port(None).dropped), (3, 2));
    let mut network = through("rate 1gbit, drop 100%");
    assert!(network.send(Instant::ZERO, &net(), &[0; LENGTH]).lost);
    assert_eq!(network.port(None), QueueCounters::default());
}

#[test]
fn marks_follow_the_queue_and_the_seed() {
    let plan = "rate 1gbit, ecn 12500b..37500b 50%";
    let marked = |seed, traffic_class| {
        let mut network = Network::with_plan(plan.parse().unwrap(), seed);
        for _ in 0..400 {
            let net = NetHeader { traffic_class, ..net() };
            network.send(Instant::ZERO, &net, &[0; LENGTH]);
        }
        let counted = network.port(None).marked;
        let marks: Vec<_> =
            arrivals(&mut network).iter().map(|(_, d)| d.net.is_congested()).collect();
        assert_eq!(marks.iter().filter(|&&mark| mark).count() as u64, counted);
        marks
    };
    let marks = marked(1, 2);
    let count = |range: std::ops::Range<usize>| marks[range].iter().filter(|&&mark| mark).count();
    // 101st: 12,500 bytes; 301st: 37,500
    assert_eq!((count(0..101), count(301..400)), (0, 99));
    assert!((30..70).contains(&count(101..301)), "{} of 200, with 25%", count(101..301));
    assert!(count(101..201) < count(201..301));
    assert_eq!(marked(1, 2), marks);
    assert_ne!(marked(2, 2), marks);
    assert_eq!(marked(1, 1), marks);
    assert!(!marked(1, 0).contains(&true), "who cannot do with marks gets none");
    assert!(!through(plan).send(Instant::ZERO, &net(), b"").congestion);
}

#[test]
fn a_port_does_not_disturb_the_faults() {
    let lost = |plan| -> Vec<_> {
        let mut network = through(plan);
        (0..500).map(|_| network.send(Instant::ZERO, &net(), &[0; LENGTH]).lost).collect()
    };
    assert_eq!(lost("drop 10%"), lost("drop 10%, rate 1mbit, ecn 1kb..30kb 20%"));
}

#[test]
fn a_receiver_has_a_pace_and_a_buffer() {
    let mut network = through("receiver 3us 2kb, delay 1us");
    for micros in [0, 1, 2, 3] {
        network.send(Instant::from_nanos(micros * 1000), &net(), &[0; 100]);
    }
    assert_eq!(times(&mut network), [4000, 7000, 10_000]);
    let counters = QueueCounters { passed: 3, dropped: 1, marked: 0, longest: 2 * 868 };
    assert_eq!(network.receive_buffer(Some(net().dst)), counters);
    assert_eq!(network.receive_buffer(None), counters);
    assert_eq!(network.port(None), QueueCounters::default());
}

/// Independent of poll times and sending order.
#[test]
fn a_receiver_takes_in_the_order_of_arrival() {
    let of = |look: u64| {
        let mut network = through("receiver 2us 8kb, jitter 30us");
        for i in 0..100u8 {
            network.send(Instant::from_nanos(u64::from(i) * 1000), &net(), &[i]);
        }
        let (mut order, mut now) = (Vec::new(), Instant::from_nanos(100_000));
        while network.in_flight() > 0 {
            while let Some(datagram) = network.poll_deliver(now) {
                order.push(datagram.number);
            }
            now = now.plus(Duration::from_nanos(look));
        }
        (order, network.receive_buffer(None))
    };
    let (order, counters) = of(1);
    assert_eq!((order.len() as u64, counters.passed + counters.dropped), (counters.passed, 100));
    assert!(!order.is_sorted() && counters.dropped > 0, "{counters:?}");
    assert_eq!(of(1), of(70_000));
}

#[test]
fn the_last_word_on_a_verdict_changes_nothing_for_others() {
    let conditions = Conditions {
        loss: 0.2,
        delay: Duration::from_micros(10),
        jitter: Duration::from_micros(3),
        ..Conditions::default()
    };
    let of = |changed: Option<u64>| {
        let mut network = Network::new(conditions, 1);
        for number in 0..100 {
            assert_eq!(network.next_number(), number);
            let at = Instant::from_nanos(number * 1000);
            network.send_with(at, &net(), &[0; 16], |verdict| {
                if changed == Some(number) {
                    verdict.lost = !verdict.lost;
                }
            });
        }
        let arrived = arrivals(&mut network).into_iter();
        arrived.map(|(at, datagram)| (datagram.number, at)).collect::<Vec<_>>()
    };
    let unchanged = of(None);
    for number in 0..100 {
        let (mut one, mut other) = (of(Some(number)), unchanged.clone());
        assert_ne!(one.len(), other.len());
        one.retain(|it| it.0 != number);
        other.retain(|it| it.0 != number);
        assert_eq!(one, other);
    }
}
