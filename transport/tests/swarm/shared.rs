use roce_transport::{
    event::Event,
    qp::PostError,
    work::{RecvWr, SrqAttr, SrqError, SrqId},
};

use super::{dice::Dice, model::Received};
use crate::common::{Buffer, Node};

pub const FIRST_ID: u64 = 1 << 32;

const MOST: u32 = 24;

pub struct Pool {
    pub id: SrqId,
    pub buffer: Buffer,
    start: Vec<u8>,
    slot: usize,
    slots: usize,
    posted: usize,
    /// Event requests, and replaced ones.
    armed: u64,
    replaced: u64,
    events: u64,
    /// Messages by slot; `None` failed.
    completed: Vec<(u64, Option<Vec<u8>>)>,
    /// Requests possibly lost with a queue pair.
    pub lost: usize,
}

impl Pool {
    pub fn new(node: &mut Node, slots: usize, slot: usize, dice: &mut Dice) -> Self {
        let attr = SrqAttr { max_wr: dice.range(1, MOST), max_sge: 2 };
        let pd = node.pd;
        let id = node.adapter.create_srq(pd, attr).unwrap();
        let buffer = node.buffer(slots * slot);
        let start = dice.bytes(slots * slot);
        buffer.put(0, &start);
        let (posted, armed, replaced, events, lost) = (0, 0, 0, 0, 0);
        Self {
            id,
            buffer,
            start,
            slot,
            slots,
            posted,
            armed,
            replaced,
            events,
            completed: Vec::new(),
            lost,
        }
    }

    pub fn tend(&mut self, node: &mut Node, dice: &mut Dice) {
        if dice.one_in(4) {
            self.resize(node, dice.range(1, MOST));
        }
        if dice.one_in(4) {
            self.ask(node, dice.below(MOST));
        }
        while self.posted < self.slots {
            let info = node.adapter.query_srq(self.id).unwrap();
            if info.posted > 0 && dice.one_in(4) {
                break;
            }
            let at = self.posted * self.slot;
            let cut = dice.below(self.slot as u32) as usize;
            let sges = [self.buffer.sge(at, cut), self.buffer.sge(at + cut, self.slot - cut)];
            let wr = RecvWr::new(FIRST_ID + self.posted as u64, sges);
            let result = node.adapter.post_srq_recv(self.id, &wr);
            if info.posted == info.attr.max_wr {
                assert_eq!(result, Err(PostError::QueueFull));
                break;
            }
            assert_eq!(result, Ok(()));
            self.posted += 1;
        }
    }

    fn resize(&self, node: &mut Node, size: u32) {
        let before = node.adapter.query_srq(self.id).unwrap();
        let expected = match () {
            () if before.posted > size => Err(SrqError::Posted(before.posted)),
            () if before.limit > size => Err(SrqError::Limit(size)),
            () => Ok(()),
        };
        assert_eq!(node.adapter.resize_srq(self.id, size), expected);
        let after = node.adapter.query_srq(self.id).unwrap();
        assert_eq!(after.attr.max_wr, if expected.is_ok() { size } else { before.attr.max_wr });
        assert_eq!((after.posted, after.limit), (before.posted, before.limit));
    }

    fn ask(&mut self, node: &mut Node, limit: u32) {
        let before = node.adapter.query_srq(self.id).unwrap();
        if node.adapter.set_srq_limit(self.id, limit).is_ok() {
            self.armed += u64::from(limit > 0);
            self.replaced += u64::from(before.limit > 0);
        } else {
            assert!(limit > before.attr.max_wr);
        }
    }

    pub fn record_events(&mut self, node: &Node) {
        self.events =
            node.events.iter().filter(|&&event| event == Event::SrqLimitReached(self.id)).count()
                as u64;
    }

    pub fn completed(&mut self, id: u64, message: Option<&Received>) {
        self.completed.push((id - FIRST_ID, message.map(|message| message.bytes.clone())));
    }

    /// Returns the number of events.
    pub fn check(&mut self, node: &Node) -> u64 {
        self.record_events(node);
        let info = node.adapter.query_srq(self.id).unwrap();
        assert_eq!(
            self.events,
            self.armed - self.replaced - u64::from(info.limit > 0),
            "events of the limit"
        );
        let gone = self.posted - self.completed.len() - info.posted as usize;
        assert!(gone <= self.lost, "{gone} requests are lost, where {} may be", self.lost);
        let mut ids: Vec<_> = self.completed.iter().map(|&(id, _)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), self.completed.len(), "a request completed twice");
        let image = self.buffer.bytes();
        let mut must = self.start.clone();
        let mut changed = 0;
        for slot in 0..self.slots {
            let at = slot * self.slot..(slot + 1) * self.slot;
            match self.completed.iter().find(|&&(id, _)| id == slot as u64) {
                Some((_, Some(message))) => {
                    must[at.start..at.start + message.len()].copy_from_slice(message);
                }
                Some((_, None)) => continue,
                None if image[at.clone()] != must[at.clone()] => {
                    changed += 1;
                    continue;
                }
                None => {}
            }
            assert!(
                image[at.clone()] == must[at],
                "the buffer of request {slot} of the shared receive queue"
            );
        }
        assert!(
            changed <= self.lost,
            "{changed} buffers have changed whose requests are not complete"
        );
        self.events
    }
}
