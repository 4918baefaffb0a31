//! Options of a measurement, completed and compared with the peer's.

use std::time::Duration;

use roce::Mtu;

use super::args::TestArgs;
use crate::failure::{Failure, fail};

const GREETING: &str = "roce perf 2";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Write,
    Read,
    Send,
    Atomic,
}

impl Test {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Atomic => "atomic",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Write => "RDMA_Write",
            Self::Read => "RDMA_Read",
            Self::Send => "Send",
            Self::Atomic => "Atomic FETCH_AND_ADD",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Amount {
    /// Per queue pair.
    Iters(u32),
    Time(Duration),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) test: Test,
    pub(super) latency: bool,
    pub(super) sizes: Vec<u32>,
    pub(super) amount: Amount,
    /// Per thread.
    pub(super) qps: usize,
    pub(super) threads: usize,
    pub(super) depth: usize,
    /// Messages per call.
    pub(super) list: usize,
    /// `None`: the greatest of both ports.
    pub(super) mtu: Option<Mtu>,
    pub(super) both_ways: bool,
    pub(super) events: bool,
}

impl Plan {
    pub(super) fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0) as usize
    }

    pub(super) fn new(test: Test, args: &TestArgs) -> Result<Self, Failure> {
        let latency = args.lat;
        let path_mtu = |bytes| {
            Mtu::from_bytes(bytes).ok_or_else(|| {
                format!("{bytes} is not a path MTU; choose 256, 512, 1024, 2048 or 4096 with -m")
            })
        };
        let mtu = args.mtu.map(path_mtu).transpose()?;
        let sizes = match (test, args.amount.size, args.amount.all) {
            (Test::Atomic, None | Some(8), false) => vec![8],
            (Test::Atomic, ..) => fail!("an atomic always has 8 bytes; omit -s and -a"),
            (.., true) => (1..=23).map(|power| 1 << power).collect(),
            (_, Some(size), _) if (1..=1 << 31).contains(&size) => vec![size],
            (_, Some(size), _) => {
                fail!("-s {size} is out of range; expected 1 to 2147483648 bytes");
            }
            (_, None, _) => vec![if latency { 2 } else { 65_536 }],
        };
        if latency && test == Test::Write && args.events {
            fail!("write --lat polls memory, which raises no event; omit -e, or use send --lat");
        }
        if args.queues.post_list > args.queues.tx_depth {
            let (list, depth) = (args.queues.post_list, args.queues.tx_depth);
            fail!("-l {list} exceeds the {depth} messages in flight; raise -t");
        }
        let iters = args.amount.iters.unwrap_or(if latency { 1000 } else { 5000 });
        Ok(Self {
            test,
            latency,
            sizes,
            amount: args.amount.duration.map_or(Amount::Iters(iters), Amount::Time),
            qps: args.queues.qps.into(),
            threads: args.queues.threads.into(),
            depth: args.queues.tx_depth.into(),
            list: args.queues.post_list.into(),
            mtu,
            both_ways: args.bidirectional,
            events: args.events,
        })
    }

    fn terms(&self) -> [(&'static str, String); 9] {
        let yes = |yes: bool| if yes { "given" } else { "not given" }.to_owned();
        let sizes = match self.sizes[..] {
            [size] => size.to_string(),
            _ => "all (-a)".to_owned(),
        };
        let amount = match self.amount {
            Amount::Iters(count) => format!("-n {count}"),
            Amount::Time(time) => format!("-D {}", time.as_secs_f64()),
        };
        [
            ("the test", self.test.word().to_owned()),
            ("--lat", yes(self.latency)),
            ("-s", sizes),
            ("-n or -D", amount),
            ("-q", self.qps.to_string()),
            ("--threads", self.threads.to_string()),
            ("-t", self.depth.to_string()),
            ("-m", self.mtu.map_or("not given".to_owned(), |mtu| mtu.bytes().to_string())),
            ("-b", yes(self.both_ways)),
        ]
    }

    pub(super) fn greeting(&self) -> String {
        self.terms().iter().fold(GREETING.to_owned(), |text, (_, value)| text + ";" + value)
    }

    pub(super) fn agree(&self, greeting: &str) -> Result<(), Failure> {
        let mut words = greeting.split(';');
        if words.next() != Some(GREETING) {
            fail!("the peer is not roce perf of this version; use the same program on both sides");
        }
        for (option, ours) in self.terms() {
            let theirs = words.next().unwrap_or_default();
            if ours != theirs {
                fail!(
                    "{option} is {ours} here and {theirs} at the peer; use the same on both sides"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            test: Test::Write,
            latency: false,
            sizes: vec![64],
            amount: Amount::Iters(10),
            qps: 1,
            threads: 1,
            depth: 4,
            list: 1,
            mtu: None,
            both_ways: false,
            events: false,
        }
    }

    #[test]
    fn a_difference_is_named_with_both_values() {
        let ours = plan();
        assert!(ours.agree(&Plan { events: true, ..plan() }.greeting()).is_ok());
        for (theirs, words) in [
            (Plan { test: Test::Read, ..plan() }, "the test is write here and read at"),
            (Plan { latency: true, ..plan() }, "--lat is not given here and given at"),
            (Plan { sizes: vec![2, 4], ..plan() }, "-s is 64 here and all (-a) at"),
            (
                Plan { amount: Amount::Time(Duration::from_secs(2)), ..plan() },
                "-n or -D is -n 10 here and -D 2 at",
            ),
            (Plan { qps: 2, ..plan() }, "-q is 1 here and 2 at"),
            (Plan { threads: 3, ..plan() }, "--threads is 1 here and 3 at"),
            (Plan { depth: 5, ..plan() }, "-t is 4 here and 5 at"),
            (Plan { mtu: Some(Mtu::B1024), ..plan() }, "-m is not given here and 1024 at"),
            (Plan { both_ways: true, ..plan() }, "-b is not given here and given at"),
        ] {
            let error = ours.agree(&theirs.greeting()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(
            ours.agree("0000:000011:1d5ef4:00").unwrap_err().to_string().contains("not roce perf")
        );
        assert!(ours.agree(GREETING).is_err());
    }
}
