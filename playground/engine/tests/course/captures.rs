//! Captures of the last lesson.

use std::time::Duration;

use roce_capture::CaptureWriter;
use roce_transport::{trace::Record, wire::NetHeader};
use roce_world::{
    End, FREE, Failure, Line, Post, PostKind, SCENARIOS, Scenario, SentDatagram, Settings, Viewer,
    play,
};

pub(crate) struct Tapped {
    pub(crate) name: &'static str,
    scenario: &'static str,
    /// End of the tap.
    at: End,
    network: &'static str,
    /// A's.
    posts: fn() -> Vec<Post>,
    packets: usize,
}

pub(crate) const ALL: &[Tapped] = &[
    // a cable that damages packets
    Tapped {
        name: "first.pcapng",
        scenario: "free",
        at: End::B,
        network: "delay 5us, corrupt 5%",
        posts: || (0..12).map(|count| post(End::A, count * 4, PostKind::Write, 4096)).collect(),
        packets: 200,
    },
    // delay beyond the acknowledge timer
    Tapped {
        name: "second.pcapng",
        scenario: "free",
        at: End::A,
        network: "delay 28ms, jitter 20ms",
        posts: || (0..8).map(|count| post(End::A, count * 26, PostKind::Write, 64)).collect(),
        packets: 200,
    },
    // lost CNPs
    Tapped {
        name: "third.pcapng",
        scenario: "congestion",
        at: End::B,
        network: "delay 5us, drop 100% cnp",
        posts: Vec::new,
        packets: 200,
    },
];

fn post(end: End, after: usize, kind: PostKind, length: u32) -> Post {
    Post { after, end, queue_pair: 0, kind, length }
}

impl Tapped {
    pub(crate) fn file(&self) -> Vec<u8> {
        let mut all = SCENARIOS.iter().chain([&FREE]);
        let scenario: &Scenario = all.find(|it| it.name == self.scenario).unwrap();
        let settings = Settings {
            network: Some(self.network.to_owned()),
            posts: (self.posts)(),
            ..Settings::default()
        };
        let mut tap = Tap { at: self.at, seen: Vec::new() };
        let (_, result) = play(scenario, &settings, &mut tap).unwrap();
        result.unwrap();
        tap.seen.sort_by_key(|it| it.0);
        let mut writer = CaptureWriter::new(Vec::new()).unwrap();
        for (at, net, bytes) in tap.seen.iter().take(self.packets) {
            writer.write(*at, net, bytes, None).unwrap();
        }
        writer.into_inner()
    }
}

struct Tap {
    at: End,
    seen: Vec<(Duration, NetHeader, Vec<u8>)>,
}

impl Viewer for Tap {
    fn say(&mut self, _text: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn figures(&mut self, _text: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn line(&mut self, _line: Line) -> Result<(), Failure> {
        Ok(())
    }

    fn datagram(&mut self, datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        let verdict = datagram.verdict;
        let (mut at, mut net, mut bytes) = (datagram.at, *datagram.net, datagram.bytes.to_vec());
        if datagram.way.from != self.at {
            if verdict.lost {
                return Ok(());
            }
            at += verdict.delay;
            if let Some(corruption) = verdict.corruption {
                corruption.apply(&mut bytes);
            }
            if verdict.congestion {
                net.traffic_class |= 3;
            }
        }
        self.seen.push((at, net, bytes));
        Ok(())
    }

    fn record(&mut self, _end: End, _record: &Record) {}
}
