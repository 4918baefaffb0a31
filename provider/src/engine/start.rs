use std::{io, os::fd::AsFd, sync::Arc, thread, time::Duration};

use roce_transport::adapter::Adapter;
use rustix::event::epoll;

use super::{
    follow::add_descriptors,
    fork,
    interface::Interface,
    lock::ShardLock,
    loop_state::LoopState,
    poller::Poller,
    publication::PUBLISH,
    room::RETRY,
    schedule::cork::Cork,
    serve::{Engine, Progress},
    shard::Shard,
    shared_cork::SharedCork,
    sink::{CounterSink, Sinks},
    sleep, slice,
    system::System,
    words::{Background, Calls, Waits},
};
use crate::{
    clock,
    diagnosis::Diagnosis,
    link::{Link, NullLink, Observer},
    port::{GidPlaces, Watch},
    readiness::wait,
    signals,
    sync::Mutex,
};

/// Longest send time while stopping.
const STOPPING: Duration = Duration::from_millis(100);

pub(crate) struct EngineParts {
    pub(crate) name: String,
    pub(crate) adapter: Adapter,
    pub(crate) places: GidPlaces,
    pub(crate) link: Box<dyn Link>,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) sinks: Sinks,
    pub(crate) watch: Option<Watch>,
    pub(crate) publishers: Vec<Box<dyn CounterSink>>,
    pub(crate) diagnosis: Option<Diagnosis>,
}

impl Engine {
    /// Starts the background thread too, unless manual; see [`stop`](Self::stop).
    pub(crate) fn start(parts: EngineParts, progress: Progress) -> io::Result<Arc<Self>> {
        let EngineParts {
            name,
            adapter,
            places,
            link,
            observer,
            sinks,
            watch,
            publishers,
            diagnosis,
        } = parts;
        let sockets = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        add_descriptors(&sockets, &*link)?;
        if let Some(watch) = watch.as_ref().filter(|_| progress == Progress::Manual) {
            epoll::add(&*sockets, watch, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let cork = match progress {
            Progress::Automatic => Cork::new(link.limits()),
            Progress::Manual => Cork::default(),
        };
        let timer = cork.is_possible().then(sleep::timer).flatten();
        let mut shard = Shard::new(name, adapter, link, observer, sinks, sockets.clone());
        if timer.is_some() {
            shard.cork = SharedCork::new(cork); // without a timer nothing would flush
        }
        shard.places = places;
        if progress == Progress::Manual {
            shard.park(); // the program may sleep at any time
        }
        if !publishers.is_empty() {
            shard.publication.start(clock::now().plus(PUBLISH));
        }
        let corked_until = shard.cork.until_shared();
        let engine = Arc::new(Self {
            shard: ShardLock::new(shard),
            system: System::new(sockets, timer)?,
            calls: Calls::default(),
            poller: Poller::default(),
            waits: Waits::default(),
            waiter: Mutex::default(),
            background: Background::default(),
            event_loop: LoopState::default(),
            corked_until,
            interface: Interface { watch, ..Interface::default() },
            publishers: Mutex::new(publishers),
            diagnosis,
            progress,
            process: std::process::id(),
        });
        fork::watch(&engine);
        engine.follow(); // the interface may have changed since the device was listed
        if progress == Progress::Automatic {
            let background = engine.clone();
            let thread = signals::blocked(|| {
                thread::Builder::new().name("roce".into()).spawn(move || {
                    slice::shorten();
                    background.run();
                })
            })?;
            *engine.system.thread.lock() = Some(thread);
        }
        Ok(engine)
    }

    /// Sends the rest and ends the background thread, which frees the addresses.
    pub(crate) fn stop(&self) {
        self.send_rest();
        self.stop_background();
        let background = self.system.thread.lock().take();
        if let Some(background) =
            background.filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = background.join(); // its panic is already printed
        }
        if let Some(diagnosis) = &self.diagnosis {
            diagnosis.report_rest(|| self.last_send_error());
        }
        self.publish();
        self.publishers.lock().clear();
    }

    /// Waits briefly for a full link or unknown destinations.
    fn send_rest(&self) {
        let end = clock::now().plus(STOPPING);
        loop {
            let (is_due, waits) = {
                let mut shard = self.lock();
                self.serve(&mut shard, false);
                (shard.is_due(), shard.is_blocked() || shard.is_waiting())
            };
            let left = end.since(clock::now());
            if left.is_zero() || !is_due && !waits {
                return;
            }
            if waits {
                let _ = wait(&[self.system.sockets.as_fd()], Some(left.min(RETRY)));
            }
        }
    }

    /// Leaves before process exit: sends the rest, and takes no packets of other processes at its
    /// addresses.
    pub(super) fn leave(&self) {
        self.send_rest();
        self.lock().replace_link(Box::new(NullLink));
        self.publish();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::IpAddr,
        os::fd::BorrowedFd,
        sync::atomic::{AtomicU32, Ordering},
    };

    use roce_transport::{
        adapter::{AdapterConfig, SourcePort, Transmit, TransmitLimits},
        time::Instant,
    };

    use super::*;
    use crate::link::Datagram;

    struct Learning {
        looks: Arc<AtomicU32>,
        needed: u32,
    }

    impl Link for Learning {
        fn addresses(&self) -> Vec<IpAddr> {
            Vec::new()
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

        fn has_waiting(&self) -> bool {
            self.looks.load(Ordering::Relaxed) < self.needed
        }

        fn receive(&mut self, _: Instant, _: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
            self.looks.fetch_add(1, Ordering::Relaxed);
            Ok(0)
        }

        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }
    }

    fn learning(looks: &Arc<AtomicU32>, needed: u32) -> EngineParts {
        EngineParts {
            name: "test".into(),
            adapter: Adapter::new(AdapterConfig::new([0; 32])),
            places: GidPlaces::default(),
            link: Box::new(Learning { looks: looks.clone(), needed }),
            observer: None,
            sinks: Sinks::default(),
            watch: None,
            publishers: Vec::new(),
            diagnosis: None,
        }
    }

    #[test]
    fn what_waits_leaves_before_the_end_unless_it_takes_too_long() {
        let ends: [fn(&Engine); 2] = [Engine::stop, Engine::leave];
        let cases = [(1, 1), (5, 5), (u32::MAX, 110)];
        for (end, (needed, most)) in ends.iter().flat_map(|end| cases.map(|case| (end, case))) {
            let looks = Arc::new(AtomicU32::new(0));
            end(&Engine::start(learning(&looks, needed), Progress::Manual).unwrap());
            let looks = looks.load(Ordering::Relaxed);
            assert!(looks >= needed.min(5) && looks <= most, "{looks} looks");
        }
    }

    /// Later packets are for the next process at the address.
    #[test]
    fn nothing_is_received_after_the_end_of_the_process() {
        let looks = Arc::new(AtomicU32::new(0));
        let engine = Engine::start(learning(&looks, 0), Progress::Manual).unwrap();
        engine.leave();
        let before = looks.load(Ordering::Relaxed);
        engine.progress();
        assert_eq!(looks.load(Ordering::Relaxed), before);
    }
}
