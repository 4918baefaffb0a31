//! Channels to other devices: requesting them, and sending through them.

use std::{io, net::IpAddr, time::Duration};

use roce_transport::{adapter::Transmit, share::IdPartition, time::Instant};

use super::{
    MAX_PAIRS, Sharing, ShmLink,
    channel::{Direct, OutgoingChannel, RETRY, Ways},
    listener::{FORWARDED, request_channel},
    peer::ForwardHeader,
};
use crate::{
    cancel::Uncancelled,
    link::{
        Datagram,
        rings::{RunHeader, SILENCE},
        share,
    },
};

/// Time that a process has to answer a request.
const ANSWER: Duration = Duration::from_secs(1);
/// Number of channels that are requested in one go for readers that are stopped: each is memory.
const RENEWALS: usize = 4;

impl ShmLink {
    /// True if there is a channel between the two addresses. If that is not known yet, requests
    /// one.
    pub(in crate::link) fn reaches(
        &mut self,
        now: Instant,
        src: IpAddr,
        dst: IpAddr,
        interface: u32,
    ) -> bool {
        match self.outgoing.get(&(src, dst)).map(|ways| &ways.main) {
            Some(OutgoingChannel::Open(..)) => return true,
            Some(OutgoingChannel::Requested(request)) if now < request.until => return false,
            Some(OutgoingChannel::Absent(until) | OutgoingChannel::Served(until))
                if now < *until =>
            {
                return false;
            }
            Some(_) => {}
            None => {
                if dst.is_multicast() || !self.has_room(now) {
                    return false;
                }
            }
        }
        self.request(now, [src, dst], interface);
        false
    }

    /// True if there are channels for all datagrams of a run.
    pub(in crate::link) fn takes(&self, bytes: &[u8], run: &Transmit) -> bool {
        let ways = self.outgoing.get(&(run.src, run.dst));
        ways.is_some_and(|ways| {
            ways.take(bytes.get(run.range.clone()).unwrap_or_default(), run.segment)
        })
    }

    /// True if the receiver of a run looks at ICRCs, or may: it is not sent through a channel.
    pub(in crate::link) fn needs_icrc(&self, bytes: &[u8], run: &Transmit) -> bool {
        !(self.trusted && self.takes(bytes, run))
    }

    /// Requests a channel between two addresses.
    pub(super) fn request(&mut self, now: Instant, ends: [IpAddr; 2], interface: u32) {
        let _uncancelled = Uncancelled::begin();
        let again = now.plus(RETRY);
        let main = if self.sharing == Sharing::InProcess {
            OutgoingChannel::Absent(again) // whoever is there
        } else {
            match request_channel(&self.epoll, ends, None, interface, now.plus(ANSWER)) {
                Ok(request) => OutgoingChannel::Requested(request),
                Err(_) if share::exists(ends[1], interface) => OutgoingChannel::Served(again),
                Err(_) => OutgoingChannel::Absent(again),
            }
        };
        match self.outgoing.get_mut(&ends.into()) {
            Some(ways) => ways.main = main,
            None => drop(self.outgoing.insert(ends.into(), Ways::new(main))),
        }
    }

    /// Requests a channel to one of several processes at an address.
    fn request_directly(&mut self, now: Instant, ends: [IpAddr; 2], partition: IdPartition) {
        let _uncancelled = Uncancelled::begin();
        let interface = self.addresses.interface(ends[0]);
        let number: usize = self.outgoing.values().map(|ways| ways.direct.len()).sum();
        let Some(ways) = self.outgoing.get_mut(&ends.into()) else { return };
        ways.probe_at = now.plus(RETRY);
        if number >= MAX_PAIRS {
            return;
        }
        let until = now.plus(ANSWER);
        if let Ok(request) = request_channel(&self.epoll, ends, Some(partition), interface, until) {
            ways.direct.push(Direct::new(now, partition, request));
            ways.probe_at = now; // perhaps there are more
        }
    }

    /// Looks for readers that are stopped, and asks whether another process has their address by
    /// now.
    pub(super) fn check_readers(&mut self, now: Instant) {
        let mut is_unread = false;
        let mut renewals = RENEWALS;
        let channels = self.outgoing.iter_mut().flat_map(|(ends, ways)| {
            ways.open().map(move |(partition, channel)| (*ends, partition, channel))
        });
        for ((src, dst), partition, channel) in channels {
            is_unread |= channel.sender.is_unread();
            let is_stalled = channel.sender.is_stalled();
            if !is_stalled {
                channel.renewals = 0;
            }
            channel.renewal.take_if(|request| !is_stalled || request.until <= now);
            if is_stalled && channel.renewal.is_none() && renewals > 0 {
                renewals -= 1;
                // another process needs some time to take over; perhaps there is none
                let until = now.plus(SILENCE * (3 << channel.renewals.min(5)));
                channel.renewals = channel.renewals.saturating_add(1);
                let interface = channel.interface;
                channel.renewal =
                    request_channel(&self.epoll, [src, dst], partition, interface, until).ok();
            }
        }
        self.check_at = is_unread.then(|| now.plus(SILENCE));
    }

    /// Passes a datagram to the owner of the address that it has come to. It is lost, as on a wire,
    /// until there is a channel for that, and while there is no owner.
    pub(super) fn pass_to_owner(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let address = datagram.net.dst;
        let ends = [FORWARDED, address];
        if !self.reaches(now, FORWARDED, address, self.addresses.interface(address)) {
            return;
        }
        let Some(header) = ForwardHeader::write(datagram, &mut self.scratch) else { return };
        let Some(channel) = self.outgoing.get_mut(&ends.into()).and_then(|ways| ways.main.open())
        else {
            return;
        };
        let result = channel.sender.send(header, &self.scratch);
        self.passed += u64::from(result.is_ok());
        channel.sender.note_sent(now, self.write_wait, &mut self.write_at, &mut self.check_at);
        self.close_if_broken(now, ends.into(), &result);
    }

    /// True if another pair of addresses can be remembered.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        if self.outgoing.len() >= MAX_PAIRS && self.sweep_at <= now {
            self.sweep_at = now.plus(RETRY);
            self.outgoing.retain(|_, ways| {
                let is_absent = matches!(
                    ways.main,
                    OutgoingChannel::Absent(until) | OutgoingChannel::Served(until)
                        if until <= now
                );
                !(is_absent && ways.direct.is_empty())
            });
        }
        self.outgoing.len() < MAX_PAIRS
    }

    /// Sends runs between two addresses through their channel, as [`Link::send`] does; `None` if
    /// there is none. What finds no room waits here: a process that is slow to read must not keep
    /// what goes to others.
    ///
    /// [`Link::send`]: crate::link::Link::send
    pub(in crate::link) fn send(
        &mut self,
        now: Instant,
        bytes: &[u8],
        runs: &[Transmit],
    ) -> Option<io::Result<usize>> {
        let first = runs.first()?;
        let key = (first.src, first.dst);
        let Self { outgoing, trusted, sent_runs, write_wait, write_at, check_at, .. } = self;
        let ways = outgoing.get_mut(&key)?;
        let payload = |run: &Transmit| bytes.get(run.range.clone()).unwrap_or_default();
        let mut taken = 0;
        let mut result = Ok(());
        for run in runs {
            let payload = payload(run);
            if !ways.take(payload, run.segment) {
                break;
            }
            result = ways.send(now, RunHeader::of(run, *trusted), payload);
            if result.is_err() {
                break;
            }
            taken += 1;
        }
        *sent_runs += taken as u64;
        for (_, channel) in ways.open().filter(|(_, channel)| channel.is_used) {
            channel.is_used = false;
            channel.sender.note_sent(now, *write_wait, write_at, check_at);
        }
        if let Some(partition) = ways.wants(now, payload(first)) {
            self.request_directly(now, key.into(), partition);
        }
        self.close_if_broken(now, key, &result);
        // an error is told when its run is the first
        if taken > 0 { Some(Ok(taken)) } else { result.err().map(Err) }
    }

    /// Closes a channel that was found to be broken.
    fn close_if_broken(&mut self, now: Instant, key: (IpAddr, IpAddr), result: &io::Result<()>) {
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            let _uncancelled = Uncancelled::begin(); // descriptors are closed
            if let Some(ways) = self.outgoing.get_mut(&key) {
                ways.close_broken(now);
            }
        }
    }
}
