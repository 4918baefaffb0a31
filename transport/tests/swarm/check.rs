use std::{collections::BTreeMap, ops::Range, sync::Arc};

use roce_transport::{
    adapter::ObjectError,
    mem::WindowId,
    qp::State,
    work::{Wc, WcOk, WcStatus},
};

use super::{
    model::id,
    program::{How, Kind, Op, Talk},
    run::Run,
};

/// Coverage of all runs.
pub type Totals = BTreeMap<String, u64>;

fn count(totals: &mut Totals, what: impl Into<String>) {
    *totals.entry(what.into()).or_default() += 1;
}

impl Run<'_> {
    /// False if a connection failed by itself.
    pub fn check(&mut self, totals: &mut Totals) -> bool {
        let mut clean = true;
        for talk in 0..self.talks.len() {
            let spec = &self.program.talks[talk];
            let failed = self.talks[talk].sent.iter().flatten().any(|wc| wc.result.is_err());
            clean &= !failed || spec.is_doomed();
            for side in 0..2 {
                self.check_sent(talk, side, totals);
                self.check_received(talk, side, totals);
                self.check_memory(talk, side, failed || spec.is_doomed());
                if !self.expected.talks[talk].newer[side].is_empty() {
                    count(totals, "READs with a WRITE behind them");
                }
            }
            self.check_end(talk, totals);
        }
        assert!(
            clean || !self.lossless || self.program.options.retry_cnt < 7,
            "a connection failed, and nothing was lost"
        );
        if self.program.xrc {
            count(totals, "extended reliable connections");
        }
        for chat in &self.chats {
            chat.check(self.perfect);
            count(totals, "chats");
        }
        for link in 0..self.links.len() {
            for side in 0..2 {
                // a failed peer's unfinished message keeps a receive
                let waits = !self.is_dead(link, side) && self.is_dead(link, 1 - side);
                if let Some(pool) = self.pools[side].as_mut().filter(|_| waits) {
                    pool.lost += 1;
                }
            }
        }
        for (pool, node) in self.pools.iter_mut().zip([&self.pair.a, &self.pair.b]) {
            if let Some(pool) = pool {
                *totals.entry("events of a shared receive queue".into()).or_default() +=
                    pool.check(node);
            }
        }
        clean
    }

    /// Successes, one failure, flushes.
    fn check_sent(&self, talk: usize, side: usize, totals: &mut Totals) {
        let (spec, state) = (&self.program.talks[talk], &self.talks[talk]);
        let what = format!("talk {talk}, side {side}, sent");
        let is = &state.sent[side];
        let must = &self.expected.talks[talk].sent[side];
        let good = good(is);
        assert_eq!(good, must[..good.len().min(must.len())], "{what}");
        for (_, ok) in &good {
            count(totals, format!("completed {:?}", ok.opcode));
        }
        let bad = &is[good.len()..];
        let ids: Vec<_> = bad.iter().map(|wc| wc.wr_id).collect();
        let posted = id(talk, state.posted[side]);
        if let Some(&first) = ids.first() {
            let all =
                (first..posted).filter(|&its| request(spec, side, its).is_some_and(Op::is_request));
            assert!(
                state.closed[side] || all.eq(ids.iter().copied()),
                "{what}: {ids:?} before {posted}"
            );
            assert!(good.last().is_none_or(|&(last, _)| last < first), "{what}: {is:?}");
        }
        let end = ids.first().copied().unwrap_or(posted);
        let before = must.iter().take_while(|(id, _)| *id < end);
        assert!(state.closed[side] || before.count() == good.len(), "{what}: {is:?}, and {must:?}");
        for (at, wc) in bad.iter().enumerate() {
            let status = wc.result.unwrap_err().status;
            let planned = request(spec, side, wc.wr_id).and_then(|op| op.fails?.sender);
            let allowed = status == WcStatus::WrFlushErr
                || at == 0 && (status == WcStatus::RetryExcErr || planned == Some(status));
            assert!(allowed, "{what}: {status} of {:?}", request(spec, side, wc.wr_id));
            count(totals, format!("failed {status:?}"));
        }
    }

    fn check_received(&self, talk: usize, side: usize, totals: &mut Totals) {
        let (spec, state) = (&self.program.talks[talk], &self.talks[talk]);
        let what = format!("talk {talk}, side {side}, received");
        let (is, must) = (&state.received[side], &self.expected.talks[talk].received[side]);
        let good = good(is);
        assert!(good.len() <= must.len(), "{what}: {is:?}");
        for (at, (&(its, ok), must)) in good.iter().zip(must).enumerate() {
            let invalidated = must.invalidated.map(|key| self.rkey(talk, 1 - side, key));
            assert_eq!(ok, WcOk { invalidated, ..must.ok }, "{what}");
            assert!(self.program.shared[side] || its == id(talk, at), "{what}: {is:?}");
            count(totals, format!("completed {:?}", ok.opcode));
            if invalidated.is_some() {
                count(totals, "invalidated by a message");
            }
        }
        let planned = spec.halves[1 - side].ops.last().and_then(|op| op.fails?.receiver);
        for (at, wc) in is[good.len()..].iter().enumerate() {
            let status = wc.result.unwrap_err().status;
            let allowed = status == WcStatus::WrFlushErr || at == 0 && planned == Some(status);
            assert!(allowed, "{what}: {status}");
            count(totals, format!("failed {status:?}"));
        }
        // an XRC SRQ is not flushed
        if !self.program.shared[side] && !self.program.xrc {
            let ids: Vec<_> = is.iter().map(|wc| wc.wr_id).collect();
            assert!(ids.is_sorted_by(|a, b| a < b), "{what}: {is:?}");
            let failed = !state.closed[side] && self.is_dead(spec.link, side);
            assert!(!failed || ids.len() == state.receives[side], "{what}: {is:?}");
        }
        let all = state.closed.iter().any(|&closed| closed)
            || (0..2).any(|side| self.is_dead(spec.link, side))
            || state.posted[1 - side] < spec.halves[1 - side].ops.len();
        assert!(all || is.len() == must.len(), "{what}: {is:?}");
    }

    /// After a failure, bytes are old or new.
    fn check_memory(&self, talk: usize, side: usize, failed: bool) {
        let (spec, expected) = (&self.program.talks[talk], &self.expected.talks[talk]);
        let range = spec.memory[side].clone();
        let is = self.buffers[side].part(range.start, range.len());
        let must = &self.expected.memory[side][range.clone()];
        let what = format!("memory of talk {talk}, side {side}");
        // a repeated READ may execute after later requests
        let nodes = [&self.pair.a, &self.pair.b];
        let repeats = nodes.iter().any(|node| node.adapter.counters().duplicate_requests > 0);
        let is_newer =
            |at: usize| repeats && expected.newer[side].get(&(range.start + at)) == Some(&is[at]);
        if let Some(frozen) = &self.talks[talk].frozen[side] {
            assert!(is == *frozen, "{what} has changed after the end of its life");
        }
        if !failed {
            let differs = (0..is.len()).find(|&at| is[at] != must[at] && !is_newer(at));
            assert!(differs.is_none(), "{what} differs first at {differs:?} of {range:?}");
            return;
        }
        // the peer's word and failed buffers may hold anything
        let word = spec.halves[1 - side].word;
        let vague = expected.vague[side].iter().map(|&(at, length)| at..at + length);
        let vague: Vec<Range<usize>> = vague.chain(std::iter::once(word..word + 8)).collect();
        let start = &self.start[side][range.clone()];
        for at in 0..is.len() {
            let wrong = is[at] != must[at] && is[at] != start[at] && !is_newer(at);
            let excused = wrong && vague.iter().any(|range_| range_.contains(&(range.start + at)));
            assert!(!wrong || excused, "{what}: byte {at} of {range:?} is neither old nor new");
        }
        let value = u64::from_ne_bytes(self.buffers[side].part(word, 8).try_into().unwrap());
        assert!(
            expected.word[1 - side].contains(&value),
            "{what}: the word of the atomics is {value}"
        );
    }

    /// Statuses are exact on lossless networks; with reordering only if alone: an earlier READ may
    /// be repeated.
    fn check_end(&self, talk: usize, totals: &mut Totals) {
        let (spec, state) = (&self.program.talks[talk], &self.talks[talk]);
        if let Some(cut) = spec.cut {
            let how = match cut.how {
                How::Reset { .. } => "reset",
                How::Destroy => "destroyed",
                How::Error => "put into ERR",
            };
            count(totals, format!("cut off: {how}"));
        }
        for side in 0..2 {
            let Some((index, op)) =
                spec.halves[side].ops.iter().enumerate().find(|(_, op)| op.fails.is_some())
            else {
                continue;
            };
            if state.posted[side] <= index {
                continue;
            }
            let others = |its: usize| spec.halves[its].ops.len() - usize::from(its == side);
            let is_done = |its| {
                op.after
                    .iter()
                    .any(|step| step.talk == talk && step.side == its && step.op + 1 == others(its))
            };
            let is_alone = (0..2).all(|its| others(its) == 0 || is_done(its));
            let exact =
                (self.perfect || self.lossless && is_alone) && self.program.options.retry_cnt == 7;
            let status =
                |wcs: &[Wc]| wcs.iter().find_map(|wc| wc.result.err().map(|error| error.status));
            let failure = op.fails.unwrap();
            let (sent, received) = (status(&state.sent[side]), status(&state.received[1 - side]));
            if exact && failure.sender.is_some() {
                assert_eq!(sent, failure.sender, "talk {talk}: {op:?}");
            }
            if exact && failure.receiver.is_some() {
                assert_eq!(received, failure.receiver, "talk {talk}: {op:?}");
            }
            let by_window = |key| matches!(key, super::program::Key::Window { .. });
            let through = match op.kind {
                Kind::Write(target)
                | Kind::Read(target)
                | Kind::FetchAdd(target, _)
                | Kind::AtomicWrite(target) => by_window(target.key),
                _ => false,
            };
            if through && sent == Some(WcStatus::RemAccessErr) {
                count(totals, "refused a window's key");
            }
        }
    }

    pub fn tear_down(mut self) {
        let pair = &mut self.pair;
        let mut buffers = Vec::new();
        for chat in self.chats {
            buffers.extend(chat.tear_down(pair));
        }
        for node in [&mut pair.a, &mut pair.b] {
            assert_eq!(node.adapter.dealloc_pd(node.pd), Err(ObjectError::InUse));
        }
        for link in self.links {
            for (side, end) in link.ends.iter().enumerate() {
                let adapter = &mut pair.node(end.side).adapter;
                let state = adapter.query_qp(end.qpn).map(|info| info.state);
                assert_eq!(state.is_none(), link.destroyed[side]);
                assert!(
                    state.is_none_or(|state| matches!(state, State::Rts | State::Err)),
                    "{state:?}"
                );
                if !link.destroyed[side] {
                    assert_eq!(adapter.destroy_cq(end.send_cq.id()), Err(ObjectError::InUse));
                    adapter.destroy_qp(end.qpn).unwrap();
                }
                if let Some((srq, target)) = link.xrc.as_ref().map(|xrc| &xrc[side]) {
                    adapter.destroy_qp(target.qpn).unwrap();
                    assert_eq!(adapter.destroy_cq(end.recv_cq.id()), Err(ObjectError::InUse));
                    adapter.destroy_srq(*srq).unwrap();
                }
                for cq in [&end.send_cq, &end.recv_cq] {
                    assert!(cq.is_empty());
                    adapter.destroy_cq(cq.id()).unwrap();
                }
            }
        }
        let nodes = || [0, 1];
        for (spec, talk) in self.program.talks.iter().zip(self.talks) {
            for (window, rkey) in spec.windows.iter().zip(talk.windows) {
                let node = if window.owner == 0 { &mut pair.a } else { &mut pair.b };
                node.adapter.dealloc_window(WindowId::of(rkey)).unwrap();
            }
            for (spare, region) in spec.spares.iter().zip(talk.spares) {
                let node = if spare.owner == 0 { &mut pair.a } else { &mut pair.b };
                node.adapter.deregister(&region).unwrap();
                assert_eq!(Arc::strong_count(&region), 1, "something still holds the region");
            }
        }
        for side in nodes() {
            let node = if side == 0 { &mut pair.a } else { &mut pair.b };
            if let Some(pool) = self.pools[side].take() {
                node.adapter.destroy_srq(pool.id).unwrap();
                node.adapter.deregister(&pool.buffer.region).unwrap();
                buffers.push(pool.buffer);
            }
            node.adapter.deregister(&self.buffers[side].region).unwrap();
            assert_eq!(node.adapter.dealloc_pd(node.pd), Ok(()));
            assert_eq!(node.adapter.close_xrcd(node.xrcd), Ok(()));
            assert_eq!(node.adapter.poll_timeout(), None);
            node.transmit.clear();
            node.adapter.poll_transmit(pair.now, &mut node.transmit);
            assert!(node.transmit.is_empty());
        }
        buffers.extend(self.buffers);
        for buffer in buffers {
            assert_eq!(Arc::strong_count(&buffer.region), 1, "something still holds the region");
        }
    }
}

fn good(wcs: &[Wc]) -> Vec<(u64, WcOk)> {
    wcs.iter().map_while(|wc| wc.result.ok().map(|ok| (wc.wr_id, ok))).collect()
}

fn request(talk: &Talk, side: usize, id: u64) -> Option<&Op> {
    talk.halves[side].ops.get(id as usize % 1000)
}
