//! The requester's receiving half.
//!
//! Read first: InfiniBand volume 1, 9.7.5.1, 9.9.2.

use super::{
    common::{Common, Env},
    decision::{Decision, Loss, Recovery, WindowCause},
    flight,
    requester::Requester,
};
use crate::{
    event::{Disposition, DropReason},
    psn::Psn,
    time::rnr_timer,
    wire::{Ext, NakCode, Packet, Syndrome},
    work::{Cause, Half, SendOp, WcStatus},
};

impl Requester {
    pub(super) fn on_acknowledge(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Disposition {
        let psn = packet.headers.bth().psn;
        let Some(aeth) = packet.headers.ext().aeth() else {
            return Disposition::Dropped(DropReason::UnexpectedResponse);
        };
        if let Err(reason) = self.check_window(psn) {
            return Disposition::Dropped(reason);
        }
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                let was_repeated = self.probe.has_repeated(psn);
                match self.acknowledge(psn.plus(1), common, env) {
                    (completed, Gap::No) => {
                        if was_repeated {
                            self.repeat_rest(env);
                        }
                        Disposition::Acknowledged { completed }
                    }
                    (_, Gap::Yes) => self.on_gap(Disposition::Acknowledged { completed: 0 }, env),
                }
            }
            // RoCE has no reliable datagram; neither is a sign of life
            Syndrome::Reserved(_) | Syndrome::Nak(NakCode::InvalidRdRequest) => {
                Disposition::Dropped(DropReason::ReservedSyndrome)
            }
            // A NAK acknowledges everything before its PSN (C9-112).
            Syndrome::Nak(code) => match self.acknowledge(psn, common, env) {
                (_, Gap::Yes) => self.on_gap(Disposition::NakReceived(aeth.syndrome), env),
                (_, Gap::No) => self.on_nak(psn, code, env),
            },
            Syndrome::RnrNak { timer } => match self.acknowledge(psn, common, env) {
                (_, Gap::Yes) => self.on_gap(Disposition::NakReceived(aeth.syndrome), env),
                (_, Gap::No) => self.on_not_ready(psn, timer, env),
            },
        }
    }

    pub(super) fn on_data(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Disposition {
        let psn = packet.headers.bth().psn;
        if let Err(reason) = self.check_window(psn) {
            if reason == DropReason::StaleResponse {
                self.retry.on_sign_of_life(env.now);
            }
            return Disposition::Dropped(reason);
        }
        // Acknowledges every earlier request (9.7.5.1.2).
        let (before, gap) = self.acknowledge(psn, common, env);
        if gap == Gap::Yes {
            self.retry.on_sign_of_life(env.now);
            return self.on_gap(Disposition::Dropped(DropReason::ReadResponseGap), env);
        }
        let Some(wqe) = self.queue.oldest().filter(|wqe| wqe.started && wqe.awaits_response())
        else {
            return Disposition::Dropped(DropReason::UnexpectedResponse);
        };
        let Some(index) = psn.after(wqe.first_psn) else {
            return Disposition::Dropped(DropReason::UnexpectedResponse);
        };
        let offset = index * common.mtu.bytes();
        let last = index + 1 == wqe.packets;
        let cost = flight::cost(wqe, index, index + 1, common.mtu.bytes());
        let found;
        let data = match (packet.headers.ext(), wqe.op) {
            (
                Ext::AethAtomicAck(_, value),
                SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. },
            ) => {
                found = value.0.to_ne_bytes();
                Some(&found[..])
            }
            (Ext::Aeth(_) | Ext::None, SendOp::Read { .. }) => {
                let expected = if last { wqe.length - offset } else { common.mtu.bytes() };
                let place = packet.headers.bth().opcode.operation().position();
                // After a retry rxe continues the original message: FIRST equals MIDDLE here, LAST
                // equals ONLY.
                let ends = last || self.read_requests.end_of(psn) == Some(psn.plus(1));
                (place.ends() == ends && packet.payload.len() == expected as usize)
                    .then_some(packet.payload)
            }
            (Ext::Aeth(_), op) if op.awaits_placement() => {
                packet.payload.is_empty().then_some(packet.payload)
            }
            _ => None,
        };
        // Adapters also check the SGEs only after execution.
        let allowed = if index == 0 { wqe.check_local(common.receiving.pd) } else { Ok(()) };
        let mut place = |region: &_, address, bytes: &_| {
            env.place(common.half(Half::Requester), region, address, bytes)
        };
        let stored =
            data.map(|data| allowed.and_then(|()| wqe.write(offset.into(), data, &mut place)));
        match stored {
            Some(Ok(())) => {}
            Some(Err(error)) => self.fail_oldest(WcStatus::LocProtErr, Cause::Access(error)),
            None => self.fail_oldest(WcStatus::BadRespErr, Cause::ResponseMismatch),
        }
        if stored != Some(Ok(())) {
            return Disposition::Acknowledged { completed: before + 1 };
        }
        self.flight.on_acknowledged(cost, env.now);
        self.oldest_unacked = psn.plus(1);
        self.reads -= self.read_requests.on_data(self.oldest_unacked);
        if last {
            self.complete_oldest(common, env);
        }
        self.on_progress(env);
        Disposition::Acknowledged { completed: before + u32::from(last) }
    }

    pub(super) fn record_responses(&mut self, env: &mut Env<'_>) {
        self.reads -= self.read_requests.on_data(self.oldest_unacked);
        self.on_progress(env);
    }

    pub(super) fn check_window(&self, psn: Psn) -> Result<(), DropReason> {
        if psn.is_before(self.oldest_unacked) {
            Err(DropReason::StaleResponse)
        } else if !psn.is_before(self.sent_end) {
            Err(DropReason::ResponseOutsideWindow)
        } else {
            Ok(())
        }
    }

    /// Acknowledges up to `end`, or the first READ or atomic without data.
    pub(super) fn acknowledge(
        &mut self,
        end: Psn,
        common: &Common,
        env: &mut Env<'_>,
    ) -> (u32, Gap) {
        let start = self.oldest_unacked;
        let mut completed = 0;
        let mut gap = Gap::No;
        while self.oldest_unacked.is_before(end) {
            let Some(wqe) = self.queue.oldest().filter(|wqe| wqe.started && wqe.failed.is_none())
            else {
                break;
            };
            if wqe.awaits_data() {
                gap = Gap::Yes;
                break;
            }
            let its_end = wqe.end_psn();
            let reached = if end.is_before(its_end) { end } else { its_end };
            let packets = |psn: Psn| psn.after(wqe.first_psn).unwrap_or(0);
            let (from, to) = (packets(self.oldest_unacked), packets(reached));
            let cost = flight::cost(wqe, from, to, common.mtu.bytes());
            self.flight.on_acknowledged(cost, env.now);
            if end.is_before(its_end) {
                self.oldest_unacked = end;
            } else {
                self.oldest_unacked = its_end;
                self.complete_oldest(common, env);
                completed += 1;
            }
        }
        if self.oldest_unacked != start {
            self.on_progress(env);
        }
        (completed, gap)
    }

    pub(super) fn complete_oldest(&mut self, common: &Common, env: &mut Env<'_>) {
        if let Some(wqe) = self.queue.oldest() {
            self.reads -= u32::from(wqe.holds_slot);
            common.complete_send(wqe, Ok(if wqe.awaits_data() { wqe.length } else { 0 }), env);
            self.queue.pop();
        }
    }

    pub(super) fn on_progress(&mut self, env: &mut Env<'_>) {
        let before = self.oldest_unacked;
        env.record(|| Decision::Acknowledged { before });
        let outstanding = self.oldest_unacked.is_before(self.sent_end);
        self.retry.on_progress(env.now, outstanding);
        let waits = outstanding && self.retry.is_running();
        self.probe.on_progress(self.oldest_unacked, waits, env.now);
        self.lift_cursor();
    }

    /// Retransmits behind a probe: its acknowledgement covered no more.
    fn repeat_rest(&mut self, env: &mut Env<'_>) {
        let psn = self.oldest_unacked;
        if psn.is_before(self.sent_end) {
            self.flight.on_loss();
            env.record(|| Decision::Window(WindowCause::Loss));
            self.retry.record_resent(psn, env.now);
            self.recover(Recovery::Retransmit, psn, Loss::Probe, env);
        }
    }

    fn on_gap(&mut self, disposition: Disposition, env: &mut Env<'_>) -> Disposition {
        let psn = self.oldest_unacked;
        let recovery = self.retry.on_loss(psn, env.now);
        if recovery != Recovery::UnderWay {
            env.reports.counters.implied_naks += 1;
        }
        self.recover(recovery, psn, Loss::ImpliedNak, env);
        disposition
    }

    fn on_nak(&mut self, psn: Psn, code: NakCode, env: &mut Env<'_>) -> Disposition {
        let syndrome = Syndrome::Nak(code);
        let status = match code {
            NakCode::PsnSequenceError => {
                let recovery = self.retry.on_loss(psn, env.now);
                if recovery == Recovery::UnderWay {
                    return Disposition::Dropped(DropReason::RecoveryUnderWay);
                }
                env.reports.counters.sequence_naks_received += 1;
                self.flight.on_loss();
                env.record(|| Decision::Window(WindowCause::Loss));
                self.recover(recovery, psn, Loss::Nak, env);
                return Disposition::NakReceived(syndrome);
            }
            NakCode::InvalidRequest => WcStatus::RemInvReqErr,
            NakCode::RemoteAccessError => WcStatus::RemAccessErr,
            NakCode::RemoteOperationalError => WcStatus::RemOpErr,
            // handled before
            NakCode::InvalidRdRequest => return Disposition::Dropped(DropReason::ReservedSyndrome),
        };
        self.fail_oldest(status, Cause::Responder(syndrome));
        Disposition::NakReceived(syndrome)
    }

    fn on_not_ready(&mut self, psn: Psn, timer: u8, env: &mut Env<'_>) -> Disposition {
        let recovery = self.retry.on_not_ready(psn, env.now, rnr_timer(timer));
        if recovery == Recovery::UnderWay {
            return Disposition::Dropped(DropReason::RecoveryUnderWay);
        }
        self.recover(recovery, psn, Loss::NotReady, env);
        env.reports.counters.rnr_naks_received += 1;
        Disposition::NakReceived(Syndrome::RnrNak { timer })
    }
}

/// A READ or atomic without data precedes the acknowledged PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gap {
    No,
    Yes,
}
