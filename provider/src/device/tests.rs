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
use crate::{
    engine::{LOST_AFTER, LOST_TIME},
    link::Datagram,
    verbs::QpInitAttr,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Link with this result of `receive`.
pub(crate) struct TestLink {
    pub(crate) descriptor: OwnedFd,
    pub(crate) receive: Box<dyn FnMut() -> io::Result<usize> + Send>,
}

impl Link for TestLink {
    fn addresses(&self) -> Vec<IpAddr> {
        vec![[10, 0, 0, 1].into()]
    }

    fn limits(&self) -> TransmitLimits {
        TransmitLimits::SINGLE
    }

    fn source_port(&self) -> SourcePort {
        SourcePort::PerFlow
    }

    fn send(&mut self, _: Instant, _: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        Ok(runs.len())
    }

    fn receive(&mut self, _: Instant, _: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        (self.receive)()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.descriptor.as_fd()]
    }
}

/// On an unreadable link that always claims data.
fn dead(progress: Progress) -> Context {
    let descriptor = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    let receive = Box::new(|| Err(io::ErrorKind::BrokenPipe.into()));
    let link = TestLink { descriptor, receive };
    let options = OpenOptions { progress, ..OpenOptions::default() };
    Device::with_link("dead", link, Mtu::B1024, options).unwrap()
}

#[test]
fn a_link_that_cannot_be_read_is_given_up() {
    let context = dead(Progress::Manual);
    let (cq, pd) = (context.create_cq(4, None).unwrap(), context.alloc_pd().unwrap());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.to_init(roce_transport::qp::Init::default()).unwrap();
    let start = StdInstant::now();
    let mut event = None;
    while event.is_none() {
        assert_eq!(qp.query().state, State::Init);
        assert!(start.elapsed() < PATIENCE);
        context.progress();
        event = context.poll_async_event();
    }
    assert_eq!((event, context.poll_async_event()), (Some(Event::DeviceFatal), None));
    assert_eq!(qp.query().state, State::Err);
    let errors = context.link_counters().receive_errors;
    assert!(start.elapsed() >= LOST_TIME && errors >= u64::from(LOST_AFTER));
    context.progress();
    assert_eq!(context.link_counters().receive_errors, errors);
}

fn wait_until_lost(context: &Context) {
    let start = StdInstant::now();
    while context.poll_async_event() != Some(Event::DeviceFatal) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nobody_looks_at_a_lost_link_again_and_again() {
    let context = dead(Progress::Automatic);
    wait_until_lost(&context);
    let errors = context.link_counters().receive_errors;
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(context.link_counters().receive_errors, errors);
}

#[test]
fn a_device_whose_background_thread_has_panicked_is_lost() {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let descriptor = eventfd(0, flags).unwrap();
    let [wake, woken] = [(); 2].map(|()| descriptor.try_clone().unwrap());
    let receive = Box::new(move || {
        if rustix::io::read(&woken, &mut [0; 8]).is_ok() {
            std::panic::resume_unwind(Box::new("on purpose")) // without a message on stderr
        }
        Ok(0)
    });
    let link = TestLink { descriptor, receive };
    let context = Device::with_link("deaf", link, Mtu::B1024, OpenOptions::default()).unwrap();
    let (cq, pd) = (context.create_cq(4, None).unwrap(), context.alloc_pd().unwrap());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.to_init(roce_transport::qp::Init::default()).unwrap();
    rustix::io::write(&wake, &1u64.to_ne_bytes()).unwrap();
    wait_until_lost(&context);
    assert_eq!(qp.query().state, State::Err);
    context.progress(); // does not touch the link
}
