use std::{fmt::Debug, net::IpAddr};

use roce::{
    Access, AddressVector, AsyncEvent, Context, Data, Gid, Immediate, LKey, Mtu, Placement,
    PostError, QKey, QpType, Qpn, RKey, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge,
    UdDestination, Wc, WindowBind,
};
use serde_json::{Value, json};

use crate::{
    command::{Receive, Request, Segment},
    failure::Failure,
    named::{Named, find},
};

/// Prime, so that packets of a message differ.
const PERIOD: usize = 251;

pub(crate) fn pattern(seed: usize, length: usize) -> Vec<u8> {
    let start = seed % PERIOD;
    (start..start + length).map(|n| (n % PERIOD) as u8).collect()
}

pub(crate) fn access(names: &[String]) -> Result<Access, Failure> {
    names.iter().map(|name| known(Access::from_name(name), "right", name)).collect()
}

pub(crate) fn qp_type(name: &str) -> Result<QpType, Failure> {
    match name {
        "rc" => Ok(QpType::Rc),
        "uc" => Ok(QpType::Uc),
        "ud" => Ok(QpType::Ud),
        _ => Err(Failure::malformed(format!("no service {name}"))),
    }
}

pub(crate) fn mtu(bytes: u32) -> Result<Mtu, Failure> {
    Mtu::from_bytes(bytes).ok_or_else(|| {
        let text = format!("invalid path MTU {bytes}; expected 256, 512, 1024, 2048 or 4096");
        Failure::malformed(text)
    })
}

pub(crate) fn address_vector(address: IpAddr, context: &Context) -> Result<AddressVector, Failure> {
    let own = context
        .gids()
        .iter()
        .position(|own| !own.is_zero() && own.to_ip().is_ipv4() == address.is_ipv4());
    let index = own.ok_or_else(|| {
        Failure::new("EINVAL", format!("no device address has the family of {address}"))
    })?;
    Ok(AddressVector::new(Gid::from(address), index as u16))
}

fn sge(segment: &Segment) -> Sge {
    Sge { lkey: LKey(segment.lkey), address: segment.address, length: segment.length }
}

pub(crate) fn receive(wr: &Receive) -> RecvWr {
    RecvWr::new(wr.id, wr.sges.iter().map(sge))
}

pub(crate) fn request(wr: &Request, named: &Named, context: &Context) -> Result<SendWr, Failure> {
    let remote = || -> Result<Remote, Failure> {
        let place = wr
            .remote
            .as_ref()
            .ok_or_else(|| Failure::malformed(format!("{} needs a remote address", wr.op)))?;
        Ok(Remote { address: place.address, rkey: RKey(place.rkey) })
    };
    let immediate = wr.imm.map(|imm| Immediate(imm.to_be_bytes()));
    let op = match wr.op.as_str() {
        "send" => match &wr.destination {
            None => SendOp::Send { immediate },
            Some(to) => {
                let av = address_vector(to.address, context)?;
                SendOp::SendTo {
                    to: UdDestination::new(av, Qpn::new(to.qpn), QKey(to.qkey)),
                    immediate,
                }
            }
        },
        "write" => SendOp::Write { remote: remote()?, immediate },
        "read" => SendOp::Read { remote: remote()? },
        "compare_swap" => {
            SendOp::CompareSwap { remote: remote()?, compare: wr.compare, swap: wr.swap_or_add }
        }
        "fetch_add" => SendOp::FetchAdd { remote: remote()?, add: wr.swap_or_add },
        "send_invalidate" => SendOp::SendInvalidate { rkey: RKey(wr.rkey) },
        "local_invalidate" => SendOp::LocalInvalidate { rkey: RKey(wr.rkey) },
        "bind_window" => SendOp::BindWindow(bind(wr, named)?),
        "atomic_write" => SendOp::AtomicWrite { remote: remote()? },
        "flush" => {
            let flush =
                wr.flush.as_ref().ok_or_else(|| Failure::malformed("flush needs a `flush`"))?;
            let placement = flush
                .placement
                .iter()
                .map(|name| known(Placement::from_name(name), "placement", name));
            let (length, whole) = (flush.length, flush.whole);
            SendOp::Flush {
                remote: remote()?,
                length,
                placement: placement.collect::<Result<_, _>>()?,
                whole,
            }
        }
        op => return Err(Failure::malformed(format!("no operation {op}"))),
    };
    let data = match &wr.inline {
        Some(inline) => Data::inline(&pattern(inline.seed, inline.length.get())),
        None => Data::Sges(wr.sges.iter().map(sge).collect()),
    };
    let flags = wr.flags.iter().map(|name| known(SendFlags::from_name(name), "flag", name));
    Ok(SendWr { wr_id: wr.id, op, data, flags: flags.collect::<Result<_, _>>()?, remote_srq: None })
}

fn bind(wr: &Request, named: &Named) -> Result<WindowBind, Failure> {
    let bind = wr.bind.as_ref().ok_or_else(|| Failure::malformed("bind_window needs a `bind`"))?;
    let (window, region) = (find(&named.windows, &bind.window)?, find(&named.mrs, &bind.region)?);
    Ok(window.bind_to(region, bind.offset.get(), bind.length.get(), access(&bind.access)?))
}

pub(crate) fn bound_keys(wrs: &[SendWr]) -> Vec<u32> {
    let keys = wrs.iter().filter_map(|wr| match wr.op {
        SendOp::BindWindow(bind) => Some(bind.rkey.0),
        _ => None,
    });
    keys.collect()
}

fn known<T>(value: Option<T>, what: &str, name: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::malformed(format!("no {what} {name}")))
}

pub(crate) fn post_errno(error: PostError) -> &'static str {
    match error {
        PostError::QueueFull | PostError::QueueOfZero => "ENOMEM",
        _ => "EINVAL",
    }
}

/// `{id, qpn, status}`; success: `{opcode, byte_len, imm, src_qp}`, failure: `{reason}`.
pub(crate) fn completion(wc: &Wc) -> Value {
    match wc.result {
        Ok(ok) => json!({
            "id": wc.wr_id, "qpn": wc.qpn.get(), "status": "SUCCESS", "opcode": c_name(&ok.opcode), "byte_len": ok.byte_len,
            "imm": ok.immediate.map(|immediate| u32::from_be_bytes(immediate.0)),
            "invalidated": ok.invalidated.map(|rkey| rkey.0), "src_qp": ok.src_qp.map(Qpn::get),
        }),
        Err(error) => json!({
            "id": wc.wr_id, "qpn": wc.qpn.get(), "status": c_name(&error.status), "reason": error.cause.to_string(),
        }),
    }
}

pub(crate) fn event(event: &AsyncEvent) -> Value {
    let name = match event {
        AsyncEvent::CommunicationEstablished(..) => "COMM_EST".into(),
        AsyncEvent::SendQueueDrained(..) => "SQ_DRAINED".into(),
        AsyncEvent::QpFatal(..) => "QP_FATAL".into(),
        AsyncEvent::QpRequestError(..) => "QP_REQ_ERR".into(),
        AsyncEvent::QpAccessError(..) => "QP_ACCESS_ERR".into(),
        AsyncEvent::SrqLimitReached(..) => "SRQ_LIMIT_REACHED".into(),
        AsyncEvent::LastWqeReached(..) => "QP_LAST_WQE_REACHED".into(),
        AsyncEvent::CqError(..) => "CQ_ERR".into(),
        other => format!("{other:?}"),
    };
    json!({"event": name, "reason": event.to_string()})
}

/// `RnrRetryExcErr` becomes `RNR_RETRY_EXC_ERR`.
fn c_name(value: &impl Debug) -> String {
    let mut name = String::new();
    for (at, letter) in format!("{value:?}").chars().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
