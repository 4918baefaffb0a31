//! Extended reliable connections: one connection to an adapter reaches every shared receive queue
//! of a domain there.
//!
//! Read first: InfiniBand volume 1, annex A14. An initiator sends, a target receives; otherwise
//! both keep the rules of a reliable connection, with these differences:
//!
//! - Opcodes are 0xA0 plus the operation. An XRCETH with the number of an XRC SRQ follows the BTH
//!   of *every* request packet, middle packets included. RETH, AtomicETH, FETH, immediate data and
//!   IETH come after it. Responses have none. (The table of headers by opcode of volume 1, release
//!   1.3, as in NFStest's `packet/transport/ib.py`. The same in the patch "RDMA/rxe: Add XRC
//!   opcodes to rxe_opcode_info", linux-rdma list, July 2021. Wireshark 4.0 knows no XRC opcode,
//!   and shows what follows the BTH as one piece.)
//! - A target has no queue, no completion queue and no protection domain. The XRC SRQ in the
//!   request has the receive requests, their completion queue and the domain of the R_Key, for
//!   READs, WRITEs and atomics as well. The access rights are the target's. (The same series of
//!   patches: "Enable receiving XRC packets"; in its version of September 2022 "Extend rxe_resp.c
//!   to support xrc".)
//! - A completion of a receive names the target that received, not the SRQ: `ibv_xsrq_pingpong`
//!   finds its connection by it.
//! - A number that no XRC SRQ has, or one of another domain, is answered with NAK remote access
//!   error, and the program gets an access error event. (The patches of 2021 answer so. The drivers
//!   of hns and qedr turn both errors into `IBV_EVENT_QP_ACCESS_ERR`. A later version of the
//!   patches drops such packets; the peer runs into its timeouts.)
//! - An empty XRC SRQ is "receiver not ready", as any is.
//!
//! Where the sources are silent: all packets of a message name one SRQ; another one is an invalid
//! request. A failing target always reports that it takes nothing more from its SRQs
//! (`IBV_EVENT_QP_LAST_WQE_REACHED`).

use alloc::collections::BTreeSet;

use super::{
    Qp,
    common::{Common, Env, Receiving},
    responder::Outcome,
};
use crate::{
    event::Refusal,
    ids::{Qpn, SrqId},
    wire::{NakCode, Packet},
    work::SrqTable,
};

impl Receiving {
    /// The SRQ that a request names, if a target of this domain may receive with it.
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
    /// Serves another SRQ from now on; returns what it served before.
    const fn serve(&mut self, next: Receiving) -> Receiving {
        core::mem::replace(&mut self.receiving, next)
    }

    /// The same, and the SRQs know of it.
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
    /// Takes a request for a target: serves the SRQ that it names while it is carried out, and
    /// while its message lasts.
    pub(super) fn handle_for_srq(&mut self, packet: &Packet<'_>, env: &mut Env<'_>) -> Outcome {
        let Self { common, responder, .. } = self;
        let named = packet.headers.xrceth().unwrap_or_default().0;
        let is_new = packet.headers.bth().psn == responder.expected();
        // what it serves exists and is of its domain
        if common.receiving.srq != Some(named) {
            if is_new && responder.is_within_message() {
                return responder.refuse(
                    NakCode::InvalidRequest,
                    Refusal::OpcodeOrder,
                    common,
                    env,
                );
            }
            match Receiving::find(named, common, env) {
                Ok(next) if is_new => common.serve_from_now_on(next, &mut env.resources.srqs),
                Err((code, refusal)) if is_new => {
                    return responder.refuse(code, refusal, common, env);
                }
                // what is not carried out now must not take a message under way away from its SRQ
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

    /// The SRQ that a target serves goes away, or the target is reset: a message under way is
    /// dropped.
    pub(crate) fn leave_srq(&mut self, srqs: &mut SrqTable) {
        self.responder.forget_message();
        self.common.serve_from_now_on(Receiving::NOTHING, srqs);
    }
}
