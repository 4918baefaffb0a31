//! Missing fences: a request needs the response of an earlier READ or atomic, or changes what a
//! retried READ fetches.
//!
//! Source: IBTA volume 1, 10.8.3.3 (order of work requests), rows of READs and atomics.

use std::{ops::Range, sync::Arc};

use roce_provider::transport::work::Remote;
use smallvec::SmallVec;

use super::{
    finding::{Finding, Kind},
    watch::{self, Subject},
};

#[derive(Debug, Default)]
pub(crate) struct Order {
    /// `IBV_SEND_FENCE`.
    pub(crate) is_fenced: bool,
    /// `IBV_SEND_INLINE`.
    pub(crate) is_inline: bool,
    pub(crate) remote: Option<RemoteUse>,
    /// Sent local memory.
    pub(crate) source: SmallVec<[Range<usize>; 2]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteUse {
    pub(crate) start: Remote,
    pub(crate) length: u64,
    pub(crate) operation: RemoteOperation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoteOperation {
    /// Fetches twice if the response is lost.
    Read,
    /// Changes once, even if the response is lost.
    Atomic,
    Write,
}

impl RemoteUse {
    fn overlaps(&self, other: &Self) -> bool {
        let end = |of: &Self| of.start.address.saturating_add(of.length);
        self.start.rkey == other.start.rkey
            && self.start.address < end(other)
            && other.start.address < end(self)
    }
}

/// `before` has the unfinished requests.
pub(super) fn check<'a>(
    subject: &Subject,
    order: &Order,
    before: impl DoubleEndedIterator<Item = (&'a Arc<Subject>, &'a Order)> + Clone,
) -> Option<Finding> {
    fetched_into(subject, order, &before).or_else(|| written_behind(subject, order, before))
}

/// A send from a buffer that a READ or atomic fetches into.
fn fetched_into<'a>(
    subject: &Subject,
    order: &Order,
    before: &(impl DoubleEndedIterator<Item = (&'a Arc<Subject>, &'a Order)> + Clone),
) -> Option<Finding> {
    let readers = order.source.iter().flat_map(watch::readers);
    let is_safe = |reader: &Arc<Subject>| {
        let at = before.clone().position(|(other, _)| Arc::ptr_eq(other, reader));
        let fenced_since =
            |at: usize| before.clone().skip(at + 1).any(|(_, other)| other.is_fenced);
        // a fence does not order two queues
        !order.is_inline && at.is_some_and(|at| order.is_fenced || fenced_since(at))
    };
    let reader = readers.into_iter().find(|reader| !is_safe(reader))?;
    let copied = if order.is_inline { ", copied at the post," } else { "" };
    Some(found(subject, &reader, &format!("sends{copied} the bytes that it fetches")))
}

/// A change of peer memory that an earlier READ fetches.
fn written_behind<'a>(
    subject: &Subject,
    order: &Order,
    before: impl DoubleEndedIterator<Item = (&'a Arc<Subject>, &'a Order)>,
) -> Option<Finding> {
    let written = order
        .remote
        .filter(|remote| remote.operation != RemoteOperation::Read && !order.is_fenced)?;
    for (reader, other) in before.rev() {
        if other
            .remote
            .is_some_and(|read| read.operation == RemoteOperation::Read && read.overlaps(&written))
        {
            return Some(found(subject, reader, "changes the bytes that it fetches"));
        }
        if other.is_fenced {
            break;
        }
    }
    None
}

fn found(subject: &Subject, reader: &Subject, what: &str) -> Finding {
    let what = format!("it follows {} and {what}", reader.text());
    let earlier = ("the earlier request", reader.posted.clone());
    subject.finding(Kind::FenceMissing, &what, [earlier])
}

#[cfg(test)]
mod tests {
    use roce_provider::transport::mem::RKey;

    use super::*;
    use crate::hooks::check::stack::Stack;

    fn subject(wr_id: u64) -> Arc<Subject> {
        let (call, name) = ("ibv_post_send", "request");
        Arc::new(Subject { queue: ("qp", 1), call, wr_id, name, posted: Stack::none() })
    }

    fn at(address: u64, rkey: u32, operation: RemoteOperation) -> Order {
        let start = Remote { address, rkey: RKey(rkey) };
        Order { remote: Some(RemoteUse { start, length: 100, operation }), ..Order::default() }
    }

    fn fenced(order: Order) -> Order {
        Order { is_fenced: true, ..order }
    }

    fn is_reported(orders: &[Order]) -> bool {
        let all: Vec<_> = orders.iter().map(|order| (subject(0), order)).collect();
        let ((last, order), before) = all.split_last().unwrap();
        check(last, order, before.iter().map(|(subject, order)| (subject, *order))).is_some()
    }

    #[test]
    fn a_write_behind_a_read_of_the_same_bytes_needs_a_fence() {
        use RemoteOperation::{Atomic, Read, Write};
        assert!(is_reported(&[at(0, 1, Read), at(99, 1, Write)]));
        assert!(is_reported(&[at(0, 1, Read), at(500, 1, Write), at(50, 1, Atomic)]));
        assert!(!is_reported(&[at(0, 1, Read), at(100, 1, Write)]), "other bytes");
        assert!(!is_reported(&[at(0, 1, Read), at(0, 2, Write)]), "another key");
        assert!(!is_reported(&[at(0, 1, Read), at(0, 1, Read)]));
        assert!(!is_reported(&[at(0, 1, Atomic), at(0, 1, Write)]), "its answer is kept");
        assert!(!is_reported(&[at(0, 1, Write), at(0, 1, Write)]));
        assert!(!is_reported(&[at(0, 1, Read), fenced(at(0, 1, Write))]));
        assert!(!is_reported(&[at(0, 1, Read), fenced(Order::default()), at(0, 1, Write)]));
        assert!(is_reported(&[fenced(at(0, 1, Read)), at(0, 1, Write)]), "the fence is too early");
    }
}
