//! Unreliable datagrams: one packet per message (9.8.3).

use core::net::IpAddr;

use super::{
    common::{Common, Env, NotReceived},
    decision::{Decision, Reason},
    packet::{Built, OutgoingPacket},
    requester::Requester,
    responder::Responder,
    state::State,
};
use crate::{
    addr::RoceVersion,
    event::DropReason,
    gids::Path,
    wire::{Deth, Ext, GRH_LEN, Headers, NetHeader, Opcode, Operation, Packet, Service, grh},
    work::{Cause, GrhArea, Half, SendFlags, SendOp, SendWqe, WcError, WcOk, WcOpcode, WcStatus},
};

/// Returns the path, or fails the request.
pub(super) fn build(
    common: &Common,
    requester: &mut Requester,
    slot: &mut [u8],
    env: &mut Env<'_>,
) -> Option<(Built, Path)> {
    if common.state != State::Rts || requester.queue.oldest()?.failed.is_some() {
        return None;
    }
    match write(common, requester, slot, env) {
        Ok(built) => {
            if let Some(wqe) = requester.take_datagram() {
                env.record(|| Decision::Packet(Reason::Datagram { wr_id: wqe.id }));
                common.complete_send(&wqe, Ok(0), env);
            }
            Some(built)
        }
        Err(error) => {
            requester.fail_oldest(error.status, error.cause);
            None
        }
    }
}

fn write(
    common: &Common,
    requester: &Requester,
    slot: &mut [u8],
    env: &Env<'_>,
) -> Result<(Built, Path), WcError> {
    let error = |cause| WcError { status: WcStatus::LocQpOpErr, cause };
    let no_route = error(Cause::NoRoute);
    let Some(wqe @ SendWqe { op: SendOp::SendTo { to, immediate }, length, .. }) =
        requester.queue.oldest()
    else {
        return Err(error(Cause::WrongOperation));
    };
    // C10-10
    if to.pd.is_some_and(|pd| pd != common.receiving.pd) {
        return Err(error(Cause::ForeignAddressHandle));
    }
    let limit = env.resources.gids.port_mtu().bytes();
    if *length > limit {
        return Err(WcError {
            status: WcStatus::LocLenErr,
            cause: Cause::TooLong { length: *length, limit },
        });
    }
    wqe.check_local(common.receiving.pd).map_err(WcError::protection)?;
    let path = env.resources.gids.path(&to.av, common.qpn, to.qpn).ok_or(no_route)?;
    let qkey = if to.qkey.is_controlled() { common.admission.qkey } else { to.qkey };
    let deth = Deth { qkey, source_qp: common.qpn };
    let (operation, ext) = match immediate {
        None => (Operation::SendOnly, Ext::Deth(deth)),
        Some(imm) => (Operation::SendOnlyImm, Ext::DethImm(deth, *imm)),
    };
    let opcode = Opcode::new(Service::Ud, operation).ok_or(no_route)?;
    let mut bth = common.bth(opcode, requester.next_psn);
    bth.dest_qp = to.qpn;
    bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
    let outgoing = OutgoingPacket { headers: Headers::built(bth, ext), payload: *length as usize };
    let written = outgoing.write(slot, |payload| wqe.read(0, payload));
    Ok((Built::new(written.map_err(WcError::protection)?), path))
}

/// The 40-byte GRH area precedes the payload.
pub(super) fn receive(
    common: &Common,
    responder: &mut Responder,
    net: &NetHeader,
    packet: &Packet<'_>,
    length: usize,
    env: &mut Env<'_>,
) -> Result<(), NotReceived> {
    let (Ext::Deth(deth) | Ext::DethImm(deth, _)) = packet.headers.ext() else {
        return Err(NotReceived::Dropped(DropReason::WrongService));
    };
    if deth.qkey != common.admission.qkey {
        env.reports.counters.qkey_violations += 1;
        return Err(NotReceived::Dropped(DropReason::QKey));
    }
    let total = (GRH_LEN + packet.payload.len()) as u64;
    let most = env.resources.gids.port_mtu().bytes() as usize;
    match responder.receives(common, env).oldest() {
        None => return Err(NotReceived::Dropped(DropReason::NoReceiveRequest)),
        Some(wqe) if total > wqe.length || packet.payload.len() > most => {
            return Err(NotReceived::Dropped(DropReason::TooLong));
        }
        Some(_) => {}
    }
    let Some(wqe) = responder.take(common, env) else {
        return Err(NotReceived::Dropped(DropReason::NoReceiveRequest));
    };
    let mut place = |region: &_, address, bytes: &_| {
        env.place(common.half(Half::Responder), region, address, bytes)
    };
    let stored = wqe
        .check()
        .and_then(|()| wqe.write(0, &grh(net, length), &mut place))
        .and_then(|()| wqe.write(GRH_LEN as u64, packet.payload, &mut place))
        .map_err(WcError::protection);
    let grh = match (net.frame.version(), net.dst) {
        (RoceVersion::V1, _) => GrhArea::GlobalRoute,
        (RoceVersion::V2, IpAddr::V4(_)) => GrhArea::Ipv4,
        (RoceVersion::V2, IpAddr::V6(_)) => GrhArea::Ipv6,
    };
    let ok = WcOk {
        immediate: packet.headers.ext().immediate(),
        src_qp: Some(deth.source_qp),
        pkey_index: common.admission.pkey_index,
        grh: Some(grh),
        ..WcOk::new(WcOpcode::Recv, total as u32)
    };
    let solicited = stored.is_ok() && packet.headers.bth().solicited;
    common.complete_recv(wqe.id, stored.map(|()| ok), solicited, env);
    stored.map_err(|_| NotReceived::Failed)
}
