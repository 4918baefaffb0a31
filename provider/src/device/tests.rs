//! Links that fail.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant as StdInstant},
};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    addr::Mtu,
    event::Event,
    qp::{QpType, State},
    time::Instant,
};
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::{engine::LOST_AFTER, link::Datagram, verbs::QpInitAttr};

/// A link that cannot be read any more, and always says that there is something to read.
struct Dead(OwnedFd);

impl Link for Dead {
    fn addresses(&self) -> Vec<IpAddr> {
        vec![[10, 0, 0, 1].into()]
    }

    fn limits(&self) -> TransmitLimits {
        TransmitLimits::SINGLE
    }

    fn source_port(&self) -> SourcePort {
        SourcePort::PerFlow
    }

    fn send(&mut self, _: Instant, _: &[u8], _: &[Transmit]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn receive(&mut self, _: Instant, _: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.as_fd()]
    }
}

fn dead(progress: Progress) -> Context {
    let link = Dead(eventfd(1, EventfdFlags::CLOEXEC).unwrap());
    let options = OpenOptions { progress, ..OpenOptions::default() };
    Device::with_link("dead", link, Mtu::B1024, options).unwrap()
}

#[test]
fn a_link_that_cannot_be_read_is_given_up() {
    let context = dead(Progress::Manual);
    let (cq, pd) = (context.create_cq(4, None).unwrap(), context.alloc_pd().unwrap());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.to_init(roce_transport::qp::Init::default()).unwrap();
    for _ in 1..LOST_AFTER {
        context.progress();
    }
    assert_eq!((context.poll_async_event(), qp.query().state), (None, State::Init));
    for _ in 0..3 {
        context.progress();
    }
    assert_eq!(
        (context.poll_async_event(), context.poll_async_event()),
        (Some(Event::DeviceFatal), None)
    );
    assert_eq!(qp.query().state, State::Err);
    assert_eq!(context.link_counters().receive_errors, u64::from(LOST_AFTER));
}

#[test]
fn nobody_looks_at_a_lost_link_again_and_again() {
    let context = dead(Progress::Automatic);
    let start = StdInstant::now();
    while context.poll_async_event() != Some(Event::DeviceFatal) {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(context.link_counters().receive_errors, u64::from(LOST_AFTER));
}
