use std::collections::{BTreeMap, VecDeque};

use roce_transport::{
    explain::{Finding, Request},
    ids::Qpn,
    trace::{Call, Record, What},
};

use crate::report::{self, Caller};

/// Requests of a queue whose callers are known.
const POSTS: usize = 256;

/// Callers of the requests that may be outstanding.
#[derive(Default)]
pub(super) struct Posts(BTreeMap<Qpn, Queues>);

#[derive(Default)]
struct Queues {
    sends: VecDeque<Post>,
    receives: VecDeque<Post>,
}

struct Post {
    wr_id: u64,
    caller: Caller,
}

impl Queues {
    const fn of(&mut self, request: Request) -> (&mut VecDeque<Post>, u64) {
        match request {
            Request::Send(wr_id) => (&mut self.sends, wr_id),
            Request::Receive(wr_id) => (&mut self.receives, wr_id),
        }
    }
}

impl Posts {
    /// Call on the thread that posts.
    pub(super) fn observe(&mut self, Record { qpn, what, .. }: &Record) {
        match what {
            What::Call { call: Call::DestroyQp, result: Ok(()) } => {
                self.0.remove(qpn);
            }
            What::Call { call, result: Ok(()) } => {
                let request = Request::posted_by(call);
                if let Some((request, caller)) =
                    request.and_then(|it| Some((it, report::caller()?)))
                {
                    let (queue, wr_id) = self.0.entry(*qpn).or_default().of(request);
                    if queue.len() == POSTS {
                        queue.pop_front();
                    }
                    queue.push_back(Post { wr_id, caller });
                }
            }
            What::Completed { wr_id, result: Ok(ok) } => {
                let Some(queues) = self.0.get_mut(qpn) else { return };
                let (queue, wr_id) = queues.of(Request::completed(*wr_id, ok.opcode));
                if let Some(at) = queue.iter().position(|post| post.wr_id == wr_id) {
                    queue.drain(..=at); // a completion covers the earlier ones
                }
            }
            _ => {}
        }
    }

    /// `None` if unknown, or if requests of several callers have the `wr_id`.
    pub(super) fn caller_of(&mut self, finding: &Finding) -> Option<Caller> {
        let (queue, wr_id) = self.0.get_mut(&finding.qpn?)?.of(finding.request?);
        let mut callers = queue.iter().filter(|post| post.wr_id == wr_id).map(|post| post.caller);
        let first = callers.next()?;
        callers.all(|caller| caller == first).then_some(first)
    }
}
