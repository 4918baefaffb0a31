//! Raw packets (`IBV_QPT_RAW_PACKET`): send requests are Ethernet frames, and received frames fill
//! receive requests.

use alloc::vec::Vec;

use super::{
    common::{Common, Env, NotReceived},
    requester::Requester,
    responder::Responder,
    state::State,
};
use crate::{
    event::DropReason,
    work::{Cause, Half, SendWqe, WcError, WcOk, WcOpcode, WcStatus},
};

/// Addresses and ethertype; a VLAN tag.
const HEADER: u32 = 14;
const TAG: u32 = 4;
const TAG_8021Q: [u8; 2] = [0x81, 0];

/// Writes the next frame, or fails its request.
pub(super) fn build(
    common: &Common,
    requester: &mut Requester,
    mtu: u32,
    frame: &mut Vec<u8>,
    env: &mut Env<'_>,
) -> bool {
    let Some(wqe) = requester.queue.oldest().filter(|_| common.state == State::Rts) else {
        return false;
    };
    if let Err(error) = write(common, wqe, mtu, frame) {
        requester.fail_oldest(error.status, error.cause);
        return false;
    }
    if let Some(wqe) = requester.queue.pop() {
        env.reports.counters.sent_frames += 1;
        common.complete_send(&wqe, Ok(0), env);
    }
    true
}

fn write(common: &Common, wqe: &SendWqe, mtu: u32, frame: &mut Vec<u8>) -> Result<(), WcError> {
    let length = wqe.length;
    let bad_length = |cause| WcError { status: WcStatus::LocLenErr, cause };
    if length < HEADER {
        return Err(bad_length(Cause::TooShort { length, least: HEADER }));
    }
    let limit = mtu.saturating_add(HEADER);
    let too_long = bad_length(Cause::TooLong { length, limit });
    if length > limit.saturating_add(TAG) {
        return Err(too_long);
    }
    wqe.check_local(common.receiving.pd).map_err(WcError::protection)?;
    frame.clear();
    frame.resize(length as usize, 0);
    wqe.read(0, frame).map_err(WcError::protection)?;
    let is_tagged = frame.get(12..14) == Some(&TAG_8021Q);
    if length > limit && !is_tagged { Err(too_long) } else { Ok(()) }
}

pub(super) fn receive(
    common: &Common,
    responder: &mut Responder,
    bytes: &[u8],
    flow_tag: u32,
    env: &mut Env<'_>,
) -> Result<(), NotReceived> {
    if !matches!(common.state, State::Rtr | State::Rts | State::Sqd | State::Sqe) {
        return Err(NotReceived::Dropped(DropReason::QpState));
    }
    let Some(wqe) = responder.take(common, env) else {
        return Err(NotReceived::Dropped(DropReason::NoReceiveRequest));
    };
    let length = bytes.len() as u32;
    let stored = if u64::from(length) > wqe.length {
        let cause = Cause::TooLong { length, limit: wqe.length as u32 };
        Err(WcError { status: WcStatus::LocLenErr, cause })
    } else {
        let mut place = |region: &_, address, bytes: &_| {
            env.place(common.half(Half::Responder), region, address, bytes)
        };
        let written = wqe.check().and_then(|()| wqe.write(0, bytes, &mut place));
        written.map_err(WcError::protection)
    };
    env.reports.counters.received_frames += u64::from(stored.is_ok());
    let ok = WcOk { flow_tag, ..WcOk::new(WcOpcode::Recv, length) };
    common.complete_recv(wqe.id, stored.map(|()| ok), false, env);
    stored.map_err(|_| NotReceived::Failed)
}
