//! The adapter's part of the [record](crate::trace).

use super::{Adapter, ObjectError, TransmitBuffer, recorder::Mark, turns::entry};
use crate::{
    cm::MadReason,
    event::Disposition,
    ids::Qpn,
    qp::{Decision, QpType, State, WindowCause},
    time::Instant,
    trace::{Call, CallError, Failure, PacketRecord, Record, What, Why},
    wire::{Datagram, NetHeader, Packet, ParseError},
};

impl Adapter {
    #[inline]
    pub(super) fn begin_record(&mut self, now: Instant) -> Mark {
        if self.recorder.is_some() { self.set_mark(now) } else { Mark(None) }
    }

    #[cold]
    #[inline(never)]
    fn set_mark(&mut self, now: Instant) -> Mark {
        Mark(self.recorder.as_mut().map(|recorder| {
            recorder.now = recorder.now.max(now);
            recorder.depth += 1;
            recorder.held.len()
        }))
    }

    #[inline]
    pub(super) fn end_record(
        &mut self,
        mark: Mark,
        now: Instant,
        qpn: Qpn,
        what: impl FnOnce() -> What,
    ) {
        if let Mark(Some(at)) = mark {
            self.insert_record(at, now, qpn, what);
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_record(&mut self, at: usize, now: Instant, qpn: Qpn, what: impl FnOnce() -> What) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.now = recorder.now.max(now);
        recorder.held.insert(at, Record { at: recorder.now, qpn, what: what() });
        recorder.depth -= 1;
        self.flush_record();
    }

    pub(super) fn recorded<T, E: Copy + Into<CallError>>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        call: impl FnOnce() -> Call,
        act: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let mark = self.begin_record(now);
        let result = act(self);
        self.end_record(mark, now, qpn, || What::Call {
            call: call(),
            result: result.as_ref().map(|_| ()).map_err(|&error| error.into()),
        });
        result
    }

    #[inline]
    pub(super) fn record_decisions(&mut self, now: Instant, index: usize) {
        if self.reports.decisions.are_recorded() {
            self.drain_decisions(now, index, None);
        }
    }

    #[inline]
    pub(super) fn record_sent(&mut self, now: Instant, index: usize, buffer: &TransmitBuffer) {
        if self.reports.decisions.are_recorded() {
            self.drain_decisions(now, index, buffer.last());
        }
    }

    #[cold]
    #[inline(never)]
    fn drain_decisions(&mut self, now: Instant, index: usize, sent: Option<(NetHeader, &[u8])>) {
        let Some(recorder) = &mut self.recorder else { return };
        let mut decisions = self.reports.decisions.drain();
        let Some(qp) = self.qps.get(index) else { return };
        let qpn = qp.common.qpn;
        let mut cause = WindowCause::Acknowledged;
        // skip packets recorded but not written
        let built = decisions.iter().rposition(|decision| matches!(decision, Decision::Packet(_)));
        for (at, decision) in decisions.drain(..).enumerate() {
            let what = match decision {
                Decision::Packet(reason) => match sent.filter(|_| Some(at) == built) {
                    Some((net, bytes)) => match packet(&net, bytes) {
                        Ok(packet) => What::Sent { packet, why: Why::Queue(reason) },
                        Err(_) => continue, // an adapter builds no malformed packet
                    },
                    None => continue,
                },
                Decision::Acknowledged { before } => What::Acknowledged { before },
                Decision::Recovery { psn, loss, recovery } => {
                    What::Recovery { psn, loss, recovery }
                }
                Decision::Timer(timer) => What::Timer(timer),
                Decision::Completed(wc) => What::Completed { wr_id: wc.wr_id, result: wc.result },
                Decision::Window(its) => {
                    cause = its;
                    continue;
                }
                Decision::State { from, to, .. } if from == to => continue,
                Decision::State { from, to, failure } => What::State { from, to, failure },
            };
            recorder.push(now, qpn, what);
        }
        recorder.record_pace(now, index, qp, cause);
        self.flush_record();
    }

    #[cold]
    pub(super) fn record_transition(&mut self, now: Instant, index: usize, from: State) {
        let Some(recorder) = &mut self.recorder else { return };
        let Some(qp) = self.qps.get(index) else { return };
        let to = qp.common.state;
        // ERR and SQE: noted on entry
        if to != from && !matches!(to, State::Err | State::Sqe) {
            recorder.push(now, qp.common.qpn, What::State { from, to, failure: Failure::Asked });
        }
        recorder.record_pace(now, index, qp, WindowCause::Start);
    }

    pub(super) fn record_created(&mut self, qp_type: QpType, result: &Result<Qpn, ObjectError>) {
        let mark = self.begin_record(Instant::ZERO);
        let (qpn, call) = (result.unwrap_or_default(), Call::CreateQp(qp_type));
        let result = result.map(|_| ()).map_err(CallError::from);
        self.end_record(mark, Instant::ZERO, qpn, || What::Call { call, result });
    }

    pub(super) fn record_new(&mut self, index: usize) {
        let (Some(recorder), Some(qp)) = (&mut self.recorder, self.qps.get(index)) else { return };
        *entry(&mut recorder.paces, index) = qp.pace();
    }

    #[inline]
    pub(super) fn end_arrival(
        &mut self,
        mark: Mark,
        now: Instant,
        datagram: &Datagram<'_>,
        disposition: Disposition,
    ) {
        if let Mark(Some(at)) = mark {
            self.insert_arrival(at, now, datagram, disposition);
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_arrival(
        &mut self,
        at: usize,
        now: Instant,
        datagram: &Datagram<'_>,
        disposition: Disposition,
    ) {
        let (qpn, what) = match packet(datagram.net, datagram.bytes) {
            Ok(packet) => (packet.headers.bth().dest_qp, What::Arrived { packet, disposition }),
            Err(error) => {
                let (net, length) = (*datagram.net, datagram.bytes.len());
                (Qpn::default(), What::Malformed { net, length, reason: error.into() })
            }
        };
        self.insert_record(at, now, qpn, || what);
    }

    pub(super) fn record_mad(&mut self, now: Instant, buffer: &TransmitBuffer, reason: MadReason) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Some(Ok(packet)) = buffer.last().map(|(net, bytes)| packet(&net, bytes)) {
            recorder.push(now, Qpn::GSI, What::Sent { packet, why: Why::Cm(reason) });
        }
        self.flush_record();
    }

    fn flush_record(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        if recorder.depth > 0 {
            return;
        }
        for record in recorder.held.drain(..) {
            recorder.sink.record(record);
        }
    }
}

fn packet(net: &NetHeader, bytes: &[u8]) -> Result<PacketRecord, ParseError> {
    Packet::parse(bytes).map(|packet| PacketRecord::new(net, &packet))
}
