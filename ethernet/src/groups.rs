//! Multicast membership of a station: reports to routers and switches.
//!
//! Sources: RFC 3376 (IGMPv3), RFC 2236 (IGMPv2). MLD is the same for IPv6 (RFC 3810, RFC 2710).

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use pnet_datalink::MacAddr;
use roce_transport::time::Instant;

use super::address::octets;

/// Reports per change (`[Robustness Variable]`), and their interval (`[Unsolicited Report
/// Interval]`).
const CHANGES: u8 = 2;
const REPEAT: Duration = Duration::from_secs(1);
/// Older Version Querier Present Timeout: `[Robustness Variable]` times 125 s, plus 10 s.
const OLDER: Duration = Duration::from_secs(260);
/// Bounds of the querier's response delay: a flood of queries gets ten responses a second.
const LEAST_DELAY: Duration = Duration::from_millis(100);
const MOST_DELAY: Duration = Duration::from_secs(60);
/// Records per report, below any MTU; left groups whose departure is reported twice.
const RECORDS: usize = 60;
const LEFT: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// `MODE_IS_EXCLUDE`, of no sources.
    Member = 2,
    /// `CHANGE_TO_INCLUDE_MODE`, no sources.
    Left = 3,
    /// `CHANGE_TO_EXCLUDE_MODE`, of no sources.
    Joined = 4,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// IGMPv2 or MLDv1.
    Old { group: IpAddr, leaves: bool },
    /// IGMPv3 or MLDv2, of one family.
    Report(Vec<(Record, IpAddr)>),
}

#[derive(Debug)]
struct Member {
    /// False: left, with a report outstanding.
    joined: bool,
    /// Outstanding reports of the change.
    changes: u8,
    change_due: Instant,
    /// Due response to a query.
    report_due: Option<Instant>,
    /// No other host has reported the group since (older version only).
    last: bool,
}

#[derive(Debug)]
pub(super) struct Groups {
    mac: MacAddr,
    /// False: the kernel reports and responds.
    reports: bool,
    members: BTreeMap<IpAddr, Member>,
    /// IPv4 and IPv6.
    older_until: [Instant; 2],
}

impl Groups {
    pub(super) const fn new(mac: MacAddr, reports: bool) -> Self {
        Self { mac, reports, members: BTreeMap::new(), older_until: [Instant::ZERO; 2] }
    }

    pub(super) fn contains(&self, group: IpAddr) -> bool {
        self.members.get(&group).is_some_and(|member| member.joined)
    }

    pub(super) fn join(&mut self, now: Instant, group: IpAddr) {
        if !self.contains(group) {
            let changes = if self.is_announced(group) { CHANGES } else { 0 };
            let member =
                Member { joined: true, changes, change_due: now, report_due: None, last: false };
            self.members.insert(group, member);
        }
    }

    pub(super) fn leave(&mut self, now: Instant, group: IpAddr) {
        let left = self.members.values().filter(|member| !member.joined).count();
        let is_announced = self.is_announced(group);
        let Some(member) = self.members.get_mut(&group).filter(|member| member.joined) else {
            return;
        };
        member.joined = false;
        member.report_due = None;
        member.changes = match is_announced {
            true if left < LEFT => CHANGES,
            true => 1,
            false => 0,
        };
        member.change_due = now;
        if member.changes == 0 {
            self.members.remove(&group);
        }
    }

    /// The specification picks the delay at random to spread hosts; here MAC address and group do.
    ///
    /// `asked`: unspecified for all groups. `older`: IGMPv2 or MLDv1.
    pub(super) fn handle_query(
        &mut self,
        now: Instant,
        asked: IpAddr,
        older: bool,
        within: Duration,
    ) {
        if older {
            self.older_until[usize::from(asked.is_ipv6())] = now.plus(OLDER);
        }
        let within = within.clamp(LEAST_DELAY, MOST_DELAY);
        let Self { mac, reports, members, .. } = self;
        for (&group, member) in members {
            let is_asked =
                asked == group || asked.is_unspecified() && asked.is_ipv6() == group.is_ipv6();
            if !is_asked || !member.joined || !*reports || !is_reported(group) {
                continue;
            }
            let due = now.plus(LEAST_DELAY + share(*mac, group, within - LEAST_DELAY));
            member.report_due = Some(member.report_due.map_or(due, |before| before.min(due)));
        }
    }

    /// In the older version another host's report suffices for the network.
    pub(super) fn handle_report(&mut self, now: Instant, group: IpAddr) {
        let older = now < self.older_until[usize::from(group.is_ipv6())];
        if let Some(member) = self.members.get_mut(&group).filter(|_| older) {
            member.report_due = None;
            member.last = false;
        }
    }

    fn is_announced(&self, group: IpAddr) -> bool {
        self.reports && is_reported(group)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = |member: &Member| {
            let change = (member.changes > 0).then_some(member.change_due);
            Instant::earliest([change, member.report_due])
        };
        self.members.values().filter_map(due).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Vec<Message> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let (mut messages, mut records) = (Vec::new(), [Vec::new(), Vec::new()]);
        let Self { mac, members, older_until, .. } = self;
        members.retain(|&group, member| {
            let older = now < older_until[usize::from(group.is_ipv6())];
            let is_queried = member.report_due.take_if(|due| *due <= now).is_some();
            let change = member.changes > 0 && member.change_due <= now;
            if change {
                member.changes -= 1;
                member.change_due = now.plus(share(*mac, group, REPEAT));
            }
            let record = match (change, member.joined) {
                (true, false) => Record::Left,
                (true, true) => Record::Joined,
                (false, _) if is_queried => Record::Member,
                (false, _) => return true,
            };
            match (older, record) {
                (false, record) => records[usize::from(group.is_ipv6())].push((record, group)),
                (true, Record::Left) => {
                    member.changes = 0;
                    if member.last {
                        messages.push(Message::Old { group, leaves: true });
                    }
                }
                (true, _) => {
                    member.last = true;
                    messages.push(Message::Old { group, leaves: false });
                }
            }
            member.joined || member.changes > 0
        });
        let reports = records.iter().flat_map(|records| records.chunks(RECORDS));
        messages.extend(reports.map(|records| Message::Report(records.to_vec())));
        messages
    }
}

/// False for all-hosts groups, and for groups that stay on the host (RFC 3376 section 5, RFC 3810
/// section 6).
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(v4) => v4.octets() != [224, 0, 0, 1],
        IpAddr::V6(v6) => {
            let scope = v6.segments()[0] & 0xF;
            scope > 1 && v6.segments() != [0xFF02, 0, 0, 0, 0, 0, 0, 1]
        }
    }
}

/// FNV-1a: hosts and groups differ.
fn share(mac: MacAddr, group: IpAddr, time: Duration) -> Duration {
    let hash = mac
        .octets()
        .into_iter()
        .chain(octets(group))
        .fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    time * (hash >> 16) / 65_536
}
