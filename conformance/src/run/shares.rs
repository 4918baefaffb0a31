use std::time::Duration;

use roce_transport::time::Instant;

use super::{PATIENCE, Play, Stop, mistake, wrong};
use crate::{
    case::{Field, NAK_SEQUENCE, Shares},
    outcome::{Burst, Share},
    packet::{Request, destination},
    subject::{Arrival, Subject},
};

#[derive(Default)]
struct Sender {
    burst: Burst,
    is_owed: bool,
    /// A NAK was sent for a packet that the network lost.
    is_notified: bool,
}

impl<S: Subject> Play<'_, S> {
    pub(super) fn share(&mut self, shares: &Shares) -> Result<(), Stop> {
        let &Shares { packets, least, within } = shares;
        let until = self.subject.now().plus(PATIENCE).plus(within).plus(self.subject.tolerance());
        let mut senders: Vec<_> = self.pairs.iter().map(|_| Sender::default()).collect();
        let count = |sender: &Sender| sender.burst.packets.len() as u32;
        // Now all have much to send.
        let start = self.mark.at;
        let mut first = None;
        // when the first is done
        let mut counts = None;
        while senders.iter().any(|sender| count(sender) < packets) {
            let Some((pair, arrival)) = self.arrival_of_any(until)? else {
                let come: Vec<_> = senders.iter().map(|it| count(it).to_string()).collect();
                let come = come.join(", ");
                return wrong(format!("of {packets} packets of each queue pair come {come}"));
            };
            self.choose(pair)?;
            let Request { psn, bytes, .. } = self.request(&arrival)?;
            let sender = &mut senders[pair];
            match self.pair()?.ahead(psn) {
                0 => {
                    let time = arrival.at.since(*first.get_or_insert(arrival.at));
                    sender.burst.packets.push((time, bytes));
                    (sender.is_owed, sender.is_notified) = (true, false);
                    self.count(&arrival);
                }
                1..0x0080_0000 if !sender.is_notified => {
                    sender.is_notified = true;
                    self.acknowledge(Field::Syndrome(NAK_SEQUENCE))?;
                }
                _ => {} // a retransmission
            }
            if counts.is_none() && count(&senders[pair]) == packets {
                if arrival.at <= start {
                    let text = "a queue pair has sent all before the others could begin";
                    return Err(mistake(text));
                }
                counts = Some(senders.iter().map(count).collect::<Vec<_>>());
            }
            self.pump(Duration::ZERO)?;
            // One acknowledgement per batch, as each takes time.
            if self.arrivals.is_empty() || senders.iter().all(|sender| count(sender) >= packets) {
                for (pair, sender) in senders.iter_mut().enumerate() {
                    if std::mem::take(&mut sender.is_owed) {
                        self.choose(pair)?;
                        self.acknowledge(Field::Positive)?;
                    }
                }
            }
        }
        self.choose(0)?;
        let counts = counts.unwrap_or_default();
        let of: u32 = counts.iter().sum();
        let shares = counts.iter().map(|&packets| Share { packets, of });
        let bursts = senders.into_iter().zip(shares);
        self.evidence
            .bursts
            .extend(bursts.map(|(it, share)| Burst { share: Some(share), ..it.burst }));
        let even = |packets: u32| packets * 100 * counts.len() as u32 / of.max(1);
        let slowest = counts.iter().enumerate().min_by_key(|(_, packets)| **packets);
        match slowest {
            Some((pair, &packets)) if even(packets) < least => wrong(format!(
                "queue pair {} has sent {packets} of {of} packets when the first is done, {} % of an even \
                 share, expected {least} %",
                pair + 1,
                even(packets)
            )),
            _ => Ok(()),
        }
    }

    fn arrival_of_any(&mut self, until: Instant) -> Result<Option<(usize, Arrival)>, Stop> {
        loop {
            while let Some(arrival) = self.arrivals.pop_front() {
                if let Some(to) = destination(&arrival) {
                    let pair = to.get() - self.own.get();
                    return Ok(Some((pair as usize, arrival)));
                }
            }
            if !self.take(until)? {
                return Ok(None);
            }
        }
    }
}
