//! Extended reliable connections: one connection reaches every shared receive queue of a domain.
//!
//! Read first: InfiniBand volume 1, annex A14. An initiator sends, a target receives. Differences
//! from a reliable connection:
//!
//! - Opcodes are 0xA0 plus the operation. An XRCETH with the XRC SRQ number follows the BTH of
//!   *every* request packet; responses have none. (Volume 1, release 1.3, as in NFStest's
//!   `packet/transport/ib.py`; patch "RDMA/rxe: Add XRC opcodes to rxe_opcode_info", linux-rdma,
//!   July 2021.)
//! - A target uses queue, completion queue and protection domain of the request's XRC SRQ, also for
//!   READs, WRITEs and atomics; the rights are the target's. (Same series: "Enable receiving XRC
//!   packets"; September 2022: "Extend rxe_resp.c to support xrc".)
//! - A receive completion names the target, as `ibv_xsrq_pingpong` expects.
//! - An SRQ that is unknown or of another domain gets NAK remote access error and an access error
//!   event. (Patches of 2021; hns and qedr map both to `IBV_EVENT_QP_ACCESS_ERR`. Later patches
//!   drop the packet.)
//!
//! Without a source: changing the SRQ mid-message is an invalid request; a failing target always
//! raises `IBV_EVENT_QP_LAST_WQE_REACHED`.

use alloc::collections::BTreeSet;

use super::{
    Qp,
    common::{Common, Env, Receiving},
    responder::{Message, Outcome},
};
use crate::{
    event::Refusal,
    ids::{Qpn, SrqId},
    wire::{NakCode, Packet},
    work::SrqTable,
};

impl Receiving {
    /// Fails for an SRQ outside the target's domain.
    fn find(id: SrqId, common: &Common, env: &Env<'_>) -> Result<Self, (NakCode, Refusal)> {
        let named = env.resources.srqs.get(&id).and_then(|srq| Some((srq.pd, srq.xrc.as_ref()?)));
        let (pd, xrc) = named.ok_or((NakCode::RemoteAccessError, Refusal::UnknownXrcSrq))?;
        if Some(xrc.xrcd) != common.xrcd {
            return Err((NakCode::RemoteAccessError, Refusal::ForeignXrcSrq));
        }
        if xrc.cq.has_overrun() {
            return Err((NakCode::RemoteOperationalError, Refusal::FailedXrcSrq));
        }
        Ok(Self { srq: Some(id), pd, cq: Some(xrc.cq.clone()) })
    }
}

impl Common {
    const fn serve(&mut self, next: Receiving) -> Receiving {
        core::mem::replace(&mut self.receiving, next)
    }

    /// Updates the SRQs' targets as well.
    fn serve_from_now_on(&mut self, next: Receiving, srqs: &mut SrqTable) {
        let mut targets = |srq: Option<SrqId>, act: fn(&mut BTreeSet<Qpn>, Qpn) -> bool| {
            if let Some(xrc) = srq.and_then(|id| srqs.get_mut(&id)?.xrc.as_mut()) {
                act(&mut xrc.targets, self.qpn);
            }
        };
        targets(self.receiving.srq, |targets, qpn| targets.remove(&qpn));
        targets(next.srq, |targets, qpn| targets.insert(qpn));
        self.serve(next);
    }
}

impl Qp {
    /// The target serves the request's SRQ until the message ends.
    pub(super) fn handle_for_srq(&mut self, packet: &Packet<'_>, env: &mut Env<'_>) -> Outcome {
        let Self { common, responder, .. } = self;
        let named = packet.headers.xrceth().unwrap_or_default().srq;
        let is_new = packet.headers.bth().psn == responder.expected;
        // the served SRQ exists in this domain
        if common.receiving.srq != Some(named) {
            if is_new && responder.is_within_message() {
                let (code, refusal) = (NakCode::InvalidRequest, Refusal::OpcodeOrder);
                return responder.refuse(code, refusal, common, env);
            }
            match Receiving::find(named, common, env) {
                Ok(next) if is_new => common.serve_from_now_on(next, &mut env.resources.srqs),
                Err((code, refusal)) if is_new => {
                    return responder.refuse(code, refusal, common, env);
                }
                // a request not executed now leaves a current message its SRQ
                other => {
                    let before = common.serve(other.unwrap_or(Receiving::NOTHING));
                    let outcome = responder.handle(packet, common, env);
                    common.serve(before);
                    return outcome;
                }
            }
        }
        responder.handle(packet, common, env)
    }

    /// Drops the message: the SRQ is destroyed or the target reset.
    pub(crate) fn leave_srq(&mut self, srqs: &mut SrqTable) {
        self.responder.message = Message::None;
        self.common.serve_from_now_on(Receiving::NOTHING, srqs);
    }
}
