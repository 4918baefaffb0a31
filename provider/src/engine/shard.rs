//! State under the engine's lock: adapter, link and event sinks.

use std::{io, mem, net::IpAddr, os::fd::OwnedFd, sync::Arc};

use roce_transport::{adapter::Adapter, event::Event, time::Instant};
use tracing::{debug, error, info, warn};

use super::{
    ended::EndedProcesses,
    failures::Failures,
    frames::SteeredFrames,
    log::CounterLog,
    outgoing::{Offer, Outgoing},
    publication::Publication,
    schedule::{
        cork::{Cork, Load, Next, SendPath},
        times::{LONG_HOLD, SENDING},
    },
    shared_cork::SharedCork,
    sink::{EventSink, Sinks},
};
pub(super) use crate::link::BATCH;
use crate::{
    cancel::Uncancelled,
    clock,
    counters::{LeasedAddress, LinkCounters},
    faults::{
        devices::{Due, FaultInjector, Schedule},
        live,
    },
    link::{
        BindError, Direction, FrameLink, Link, Observed, Observer, Preparation, Prepared,
        SharedRuns,
    },
    port::{Follows, GidPlaces, InterfaceState, TableChange, Watch},
};

#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Only a peer's WRITEs to memory.
    pub(super) written: bool,
}

pub(crate) struct Shard {
    /// For the log.
    name: String,
    adapter: Adapter,
    port: LinkPort,
    sinks: Sinks,
    pub(super) places: GidPlaces,
    pub(crate) link_counters: LinkCounters,
    log: CounterLog,
    outgoing: Outgoing,
    frames: SteeredFrames,
    pub(super) cork: SharedCork,
    /// Packets moved, or a post set the timer, since the latest measured hold of the lock.
    moved: bool,
    ended: EndedProcesses,
    pub(super) publication: Publication,
    /// Scheduled fault rules.
    rules: Option<Box<Schedule>>,
}

struct LinkPort {
    link: Box<dyn Link>,
    observer: Option<Box<dyn Observer>>,
    failures: Failures,
    /// Set by a fault rule.
    is_down: bool,
}

impl Shard {
    pub(super) fn new(
        name: String,
        adapter: Adapter,
        link: Box<dyn Link>,
        observer: Option<Box<dyn Observer>>,
        sinks: Sinks,
        sockets: Arc<OwnedFd>,
    ) -> Self {
        let frames = SteeredFrames::new(link.frame_address(), sockets.clone());
        let outgoing = Outgoing::new(&*link, sockets);
        let link_counters = LinkCounters::default();
        Self {
            name,
            adapter,
            port: LinkPort { link, observer, failures: Failures::default(), is_down: false },
            sinks,
            places: GidPlaces::default(),
            link_counters,
            log: CounterLog::default(),
            outgoing,
            frames,
            cork: SharedCork::default(),
            moved: false,
            ended: EndedProcesses::default(),
            publication: Publication::default(),
            rules: live::is_on().then(Box::default),
        }
    }

    pub(crate) const fn adapter(&mut self) -> &mut Adapter {
        &mut self.adapter
    }

    pub(super) fn frames_and_link(&mut self) -> (&mut SteeredFrames, Option<&mut dyn FrameLink>) {
        (&mut self.frames, self.port.link.frames())
    }

    pub(crate) fn adapter_and_link(&mut self) -> (&mut Adapter, &mut dyn Link) {
        (&mut self.adapter, &mut *self.port.link)
    }

    pub(crate) fn sink<S: EventSink + Default>(&mut self) -> &mut S {
        self.sinks.of()
    }

    pub(crate) fn link_counters(&mut self) -> LinkCounters {
        let mut totals = self.link_counters.clone();
        totals.socket_drops += self.port.link.socket_drops();
        totals.frames = self.port.link.frame_counters();
        totals.lease = self.port.link.lease().map(|lease| LeasedAddress::of(&lease));
        self.frames.count_into(&mut totals);
        if let Some(sharing) = self.port.link.sharing() {
            totals.shared_runs += sharing.shared_runs().runs;
            totals.forwarded += sharing.forwarded();
        }
        totals
    }

    pub(crate) fn parts<S: EventSink + Default>(
        &mut self,
    ) -> (&mut Adapter, &mut dyn Link, &mut S) {
        (&mut self.adapter, &mut *self.port.link, self.sinks.of())
    }

    /// True if a turn has work without arrivals.
    pub(super) fn has_work(&mut self, now: Instant) -> bool {
        self.rules.is_some()
            || self.is_due()
            || self.is_blocked()
            || self.adapter.is_due(now)
            || self.frames.deadline(&self.adapter).is_some_and(|due| due <= now)
    }

    /// True if something can be sent at once.
    pub(super) fn is_due(&self) -> bool {
        self.outgoing.is_due() || self.frames.is_due(&self.adapter) || self.is_corked()
    }

    pub(super) fn is_corked(&self) -> bool {
        self.cork.is_corked()
    }

    /// True if the post is corked.
    pub(super) fn corks(&mut self, now: Instant, load: Load, polls: u64, next: Next) -> bool {
        let waits = self.cork.change(|cork| cork.post(now, load, polls, next));
        self.link_counters.corked += if waits { load.requests() } else { 0 };
        waits
    }

    pub(super) fn is_late(&mut self, now: Instant) -> bool {
        self.cork.observer().is_late(now)
    }

    pub(super) const fn is_blocked(&self) -> bool {
        self.outgoing.is_blocked()
    }

    /// True if the link holds datagrams without a known destination.
    pub(super) fn is_waiting(&self) -> bool {
        self.port.link.has_waiting()
    }

    pub(super) const fn has_moved(&self) -> bool {
        self.moved
    }

    pub(super) const fn record_timer(&mut self) {
        self.moved = true;
    }

    /// Returns the present time.
    pub(super) fn count_hold(&mut self, start: Instant) -> Instant {
        self.moved = false;
        let now = clock::now();
        let held = now.since(start);
        let nanoseconds = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        let longest = &mut self.link_counters.longest_hold;
        *longest = nanoseconds.max(*longest);
        self.link_counters.long_holds += u64::from(held > LONG_HOLD);
        now
    }

    /// Counts a post, or a poll below a batch. Without a system call most are as short as a clock
    /// read: not measured, and `start` is returned.
    pub(super) fn count_short_hold(&mut self, start: Instant) -> Instant {
        if self.moved && self.cork.sent() == SendPath::Call {
            return self.count_hold(start);
        }
        self.moved = false;
        start
    }

    pub(super) fn serve_timers(&mut self, now: Instant) {
        self.take_turn(now, None);
    }

    /// True if acknowledgements wait after the program `found` something.
    pub(super) fn take_turn(&mut self, now: Instant, found: Option<Found>) -> bool {
        self.attend_rules(now);
        self.adapter.handle_timeout(now);
        let keeps = found.is_some_and(|found| self.find(now, found));
        if keeps {
            self.deliver_events();
        } else {
            self.transmit(now);
        }
        self.log.update(&self.name, self.adapter.counters());
        keeps
    }

    /// True if only acknowledgements are to be sent, and they wait.
    fn find(&mut self, now: Instant, Found { written }: Found) -> bool {
        (written || self.cork.sent() != SendPath::Memory)
            && !self.outgoing.is_due()
            && self.adapter.only_acknowledges()
            && self.cork.change(|cork| cork.find(now, written))
    }

    pub(crate) fn attend_rules(&mut self, now: Instant) {
        while let Some(due) = self.rules.as_mut().and_then(|rules| rules.poll(now)) {
            let _uncancelled = Uncancelled::begin();
            debug!(device = self.name, ?due, "a rule");
            match due {
                Due::Enable(on) => {
                    self.adapter.set_completion_faults(on.then(|| Box::new(FaultInjector) as _));
                    self.adapter.cm_mut().set_faults(on.then(|| Box::new(FaultInjector) as _));
                }
                Due::QpFatal(qpn) => drop(self.adapter.fail_qp(now, qpn)),
                Due::Port(up) => {
                    self.port.is_down = !up;
                    let mtu = self.adapter.gids().port_mtu();
                    self.adapter.set_port(up, mtu);
                }
                Due::GidChange => self.adapter.announce_gids(),
                Due::DeviceFatal => {
                    self.port.failures.lose();
                    self.adapter.fail(now);
                }
            }
        }
    }

    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let rules = self.rules.as_deref().and_then(Schedule::deadline);
        let adapter = self.adapter.poll_timeout();
        let frames = self.frames.deadline(&self.adapter);
        let outgoing = self.outgoing.deadline();
        Instant::earliest([adapter, self.port.link.deadline(), outgoing, frames, rules])
    }

    pub(super) const fn is_lost(&self) -> bool {
        self.port.failures.is_lost()
    }

    pub(super) fn completed_receives(&self) -> u64 {
        self.adapter.counters().completed_receives
    }

    pub(super) fn receive(&mut self, now: Instant) -> usize {
        self.receive_runs(now) + self.receive_frames(now)
    }

    fn receive_runs(&mut self, now: Instant) -> usize {
        if self.is_lost() {
            return 0;
        }
        let Self { adapter, port: LinkPort { link, observer, is_down, .. }, .. } = self;
        let _uncancelled = observer.as_ref().map(|_| Uncancelled::begin()); // observers write files
        let mut room = Vec::new();
        let result = link.receive_runs(now, &mut |run| {
            if *is_down {
                return;
            }
            let Some(observer) = observer else { return adapter.handle_run(now, run) };
            run.for_each(|datagram| {
                let receipt = adapter.handle_datagram(now, datagram);
                observer.observe(&Observed {
                    at: clock::wall(now),
                    direction: Direction::Received,
                    net: &receipt.identify(datagram),
                    bytes: datagram.sealed(&mut room),
                    disposition: Some(receipt.disposition),
                    sender_qp: Observed::sender(adapter, datagram, &receipt),
                });
            });
        });
        match result {
            Ok(received) => {
                self.port.failures.count_success();
                if self.port.link.poll_addresses() {
                    self.follow_link();
                }
                self.publication.counted |= received > 0;
                self.moved |= received > 0;
                self.ended.attend(now, &mut self.adapter, &mut *self.port.link);
                received
            }
            Err(error) => {
                self.publication.counted = true;
                self.link_counters.receive_errors += 1;
                if self.port.failures.count_failure(now) {
                    debug!(device = self.name, %error, "cannot receive from the link");
                }
                if self.is_lost() {
                    error!(device = self.name, %error, "the link is lost");
                    self.adapter.fail(now);
                }
                0
            }
        }
    }

    /// Gives up the link: no thread serves the adapter any more.
    pub(super) fn lose(&mut self, now: Instant) {
        error!(device = self.name, "the background thread panicked: the device is lost");
        self.port.failures.lose();
        self.adapter.fail(now);
        self.deliver_events();
    }

    /// Returns the preparation of new addresses.
    pub(super) fn follow(
        &mut self,
        state: &InterfaceState,
        watch: &Watch,
    ) -> Vec<(IpAddr, Preparation<BindError>)> {
        self.adapter.set_port(state.up && !self.port.is_down, state.active_mtu());
        if state.link_mtu > 0 && self.port.link.frames().is_some() {
            self.adapter.carry_frames(Some(state.link_mtu));
        }
        let change = watch.follows.compare(self.adapter.gids().entries(), &state.addresses);
        let Some(link) = self.port.link.address_set() else { return Vec::new() };
        let prepare = |address| (address, link.prepare_address(address, watch.interface));
        change.new.into_iter().map(prepare).collect()
    }

    /// True if the link's descriptors changed.
    pub(super) fn change_addresses(
        &mut self,
        state: &InterfaceState,
        watch: &Watch,
        new: Vec<(IpAddr, Result<Prepared, BindError>)>,
    ) -> bool {
        let Some(link) = self.port.link.address_set() else { return false };
        let mut table = self.adapter.gids().entries().to_vec();
        let TableChange { gone, .. } = watch.follows.compare(&table, &state.addresses);
        for &address in &gone {
            info!(device = self.name, %address, "the interface lost an address");
            link.remove_address(address);
            self.adapter.set_flow_ports(address, Vec::new());
            self.adapter.set_control_port(address, None);
            self.places.remove(&mut table, address);
        }
        let mut added = false;
        for (address, prepared) in new {
            let result = prepared.and_then(|prepared| link.add_address(address, prepared));
            if result.is_ok() && self.places.insert(&mut table, address) {
                info!(device = self.name, %address, "the interface has a new address");
                added = true;
                continue;
            }
            link.remove_address(address);
            self.link_counters.bind_errors += 1;
            result.as_ref().err().into_iter().for_each(|error| watch.await_end_of(error));
            let error = result.err().map_or_else(
                || format!("no entry for {address} in the GID table"),
                |error| error.to_string(),
            );
            warn!(device = self.name, %address, error, "the address cannot be used");
            self.link_counters.last_bind_error = Some(error);
        }
        self.publication.counted |= added || !gone.is_empty();
        self.adapter.set_gids(table);
        // after the table: connections on a returning address get its ports back
        for address in if added { self.port.link.addresses() } else { Vec::new() } {
            self.adapter.set_flow_ports(address, self.port.link.flow_ports(address));
            self.adapter.set_control_port(address, self.port.link.control_port(address));
        }
        added
    }

    fn follow_link(&mut self) {
        let mut table = self.adapter.gids().entries().to_vec();
        let TableChange { gone, new } = Follows::All.compare(&table, &self.port.link.addresses());
        for address in gone {
            self.places.remove(&mut table, address);
        }
        for address in new {
            if !self.places.insert(&mut table, address) {
                warn!(device = self.name, %address, "no entry in the GID table");
            }
        }
        self.publication.counted = true;
        self.adapter.set_gids(table);
    }

    pub(super) fn replace_link(&mut self, instead: Box<dyn Link>) {
        self.link_counters = self.link_counters();
        self.port.link = instead;
        self.outgoing.abandon();
        self.frames.abandon();
        self.cork.change(|cork| *cork = Cork::default());
    }

    pub(super) fn abandon_link(&mut self, instead: Box<dyn Link>) {
        self.replace_link(instead);
        mem::forget(self.port.observer.take()); // the parent's copy writes its buffer
        self.publication.stop();
    }

    /// Prepares to sleep on the link's descriptors; true if nothing is to be received.
    pub(super) fn park(&mut self) -> bool {
        self.port.link.park()
    }

    pub(super) fn unpark(&mut self) {
        self.port.link.unpark();
    }

    /// The link's descriptors are readable.
    pub(super) fn look(&mut self) {
        self.port.link.look();
    }

    pub(super) fn link(&self) -> &dyn Link {
        &*self.port.link
    }

    /// Sends one buffer and delivers events.
    pub(super) fn transmit(&mut self, now: Instant) {
        self.cork.change(Cork::leave);
        // before sending: refusals leave at once
        while let Some(event) = self.adapter.poll_cm_event() {
            let _uncancelled = Uncancelled::begin();
            self.sinks.on_cm_event(event, &mut self.adapter, now);
        }
        self.keep_records(now);
        if self.outgoing.build(now, &mut self.adapter) {
            if let Some(observer) = &mut self.port.observer {
                let _uncancelled = Uncancelled::begin();
                let at = clock::wall(now);
                for (net, bytes) in self.outgoing.sealed().datagrams() {
                    observer.observe(&Observed {
                        at,
                        direction: Direction::Sent,
                        net: &net,
                        bytes,
                        disposition: None,
                        sender_qp: None,
                    });
                }
            }
            self.publication.counted = true;
            self.link_counters.send_calls += 1;
        }
        if self.port.is_down {
            self.outgoing.lose();
        }
        self.send(now);
        self.send_frames(now);
        self.deliver_events();
    }

    fn receive_frames(&mut self, now: Instant) -> usize {
        if self.is_lost() {
            return 0;
        }
        let Self { frames, adapter, port, .. } = self;
        let LinkPort { link, observer, is_down, .. } = port;
        let received = {
            let observe = &mut frame_observer(observer, now, Direction::Received);
            frames.receive(now, adapter, &mut **link, *is_down, observe)
        };
        match received {
            Ok(received) => {
                self.publication.counted |= received > 0;
                self.moved |= received > 0;
                received
            }
            Err(error) => {
                self.publication.counted = true;
                self.link_counters.receive_errors += 1;
                debug!(device = self.name, %error, "cannot receive raw packets");
                0
            }
        }
    }

    fn send_frames(&mut self, now: Instant) {
        let Self { frames, adapter, port, .. } = self;
        let LinkPort { link, observer, is_down, .. } = port;
        let sent = {
            let observe = &mut frame_observer(observer, now, Direction::Sent);
            frames.send(now, adapter, &mut **link, *is_down, observe)
        };
        self.publication.counted |= sent.counted;
        self.moved |= sent.counted;
        self.link_counters.full += u64::from(sent.full);
        if let Some(error) = sent.error {
            self.count_send_error(&error);
        }
    }

    /// Passes connection records to the link, in case this process dies.
    fn keep_records(&mut self, now: Instant) {
        while let Some((conn, record)) = self.adapter.cm_mut().poll_record() {
            let Some(sharing) = self.port.link.sharing() else { continue };
            let _uncancelled = Uncancelled::begin();
            match record {
                Some(record) => sharing.keep_record(now, conn, &record),
                None => sharing.discard_record(conn),
            }
        }
    }

    fn deliver_events(&mut self) {
        while let Some(event) = self.adapter.poll_event() {
            let rare = !matches!(event, Event::Completion(_));
            let _uncancelled = rare.then(Uncancelled::begin);
            if rare {
                debug!(device = self.name, "{event}");
            }
            self.sinks.on_event(event, &mut self.adapter, &mut *self.port.link);
        }
    }

    fn send(&mut self, now: Instant) {
        let mut before = self.shared_runs();
        loop {
            let was_blocked = self.outgoing.is_blocked();
            match self.outgoing.offer(now, &mut *self.port.link) {
                Offer::Nothing => return,
                Offer::Full => {
                    self.link_counters.full += u64::from(!was_blocked);
                    self.publication.counted |= !was_blocked;
                    return;
                }
                Offer::Taken(runs) => {
                    self.link_counters.sent_runs += runs as u64;
                    let shared = self.shared_runs();
                    let sent = if shared.runs == before.runs {
                        SendPath::Call
                    } else if shared.wakeups == before.wakeups {
                        SendPath::Memory
                    } else {
                        SendPath::Wakeup
                    };
                    self.cork.observer().record_sent(sent);
                    self.outgoing.record_sent(sent == SendPath::Call);
                    before = shared;
                }
                Offer::Lost(error) => self.count_send_error(&error),
            }
            (self.publication.counted, self.moved) = (true, true);
            if self.outgoing.is_due() && clock::now().since(now) >= SENDING {
                return;
            }
        }
    }

    fn shared_runs(&mut self) -> SharedRuns {
        self.port.link.sharing().map(|sharing| sharing.shared_runs()).unwrap_or_default()
    }

    fn count_send_error(&mut self, error: &io::Error) {
        debug!(device = self.name, %error, "cannot send a packet");
        self.link_counters.send_errors += 1;
        self.link_counters.last_send_error = Some(error.to_string());
    }
}

fn frame_observer(
    observer: &mut Option<Box<dyn Observer>>,
    now: Instant,
    direction: Direction,
) -> impl FnMut(&[u8]) {
    move |frame| {
        if let Some(observer) = observer {
            let _uncancelled = Uncancelled::begin(); // observers write files
            observer.observe_frame(clock::wall(now), direction, frame);
        }
    }
}
