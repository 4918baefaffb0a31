//! Channels to other devices: requesting them, and sending through them.

use std::{io, net::IpAddr};

use roce_transport::{adapter::Transmit, time::Instant};

use super::{
    MAX_PAIRS, ShmLink, WRITE_RETRY,
    channel::{OutgoingChannel, RETRY},
    listener::request_channel,
    ring::RunHeader,
    socket::watch,
};
use crate::cancel::Uncancelled;

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
        match self.outgoing.get(&(src, dst)) {
            Some(OutgoingChannel::Open(..)) => return true,
            Some(OutgoingChannel::Requested(..)) => return false,
            Some(OutgoingChannel::Absent(until)) if now < *until => return false,
            Some(OutgoingChannel::Absent(_)) => {}
            None => {
                if dst.is_multicast() || !self.has_room(now) {
                    return false;
                }
            }
        }
        let _uncancelled = Uncancelled::begin();
        let requested = request_channel(src, dst, interface).and_then(|(socket, writer)| {
            watch(&self.epoll, &socket)?;
            Ok(OutgoingChannel::Requested(socket, writer))
        });
        self.outgoing
            .insert((src, dst), requested.unwrap_or(OutgoingChannel::Absent(now.plus(RETRY))));
        false
    }

    /// True if another pair of addresses can be remembered.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.outgoing.len() >= MAX_PAIRS && self.sweep_at <= now {
            self.sweep_at = now.plus(RETRY);
            self.outgoing.retain(
                |_, outgoing| !matches!(outgoing, OutgoingChannel::Absent(until) if *until <= now),
            );
        }
        self.outgoing.len() < MAX_PAIRS
    }

    /// Sends runs between two addresses through their channel; `None` if there is none.
    pub(in crate::link) fn send(
        &mut self,
        now: Instant,
        bytes: &[u8],
        runs: &[Transmit],
    ) -> Option<io::Result<()>> {
        let first = runs.first()?;
        let key = (first.src, first.dst);
        let Some(OutgoingChannel::Open(_, sender)) = self.outgoing.get_mut(&key) else {
            return None;
        };
        let mut result = Ok(());
        for run in runs {
            let payload = bytes.get(run.range.clone()).unwrap_or_default();
            match sender.send(RunHeader::of(run, self.trusted), payload) {
                Ok(()) => self.sent_runs += 1,
                Err(error) => result = Err(error),
            }
        }
        if !sender.wake() {
            self.write_at = Some(now.plus(WRITE_RETRY));
        }
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            let _uncancelled = Uncancelled::begin(); // closes the channel
            self.outgoing.insert(key, OutgoingChannel::Absent(now.plus(RETRY)));
        }
        Some(result)
    }
}
