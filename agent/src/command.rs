use std::net::IpAddr;

use roce::QpCaps;
use serde::Deserialize;

use crate::bound::{Count, InlineLength, Length, Name, Timeout};

/// The creator of an object names the object. Rights and flags have their C names without prefix.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Command {
    /// `{addresses, active_mtu, kind}`.
    Hello {},
    /// Protection domain.
    Pd { name: Name },
    /// `{lkey, rkey, address}`.
    Mr { name: Name, pd: String, length: Length, access: Vec<String> },
    /// 1 or 2.
    Window { name: Name, pd: String, window_type: u8 },
    /// Completion queue, without a channel.
    Cq { name: Name, size: Count },
    /// Shared receive queue.
    Srq { name: Name, pd: String, max_wr: u32, max_sge: u32 },
    /// Arms the event of the limit.
    SrqLimit { srq: String, limit: u32 },
    /// `{qpn}`.
    Qp(CreateQp),
    /// A transition takes exactly its attributes: `{"to": {"init": {"access": []}}}`.
    Modify { qp: String, to: Transition },
    /// The host joins the group, too.
    Join { qp: String, group: IpAddr },
    /// `{state}`.
    Query { qp: String },
    /// `{posted, rkeys}` with the keys of bound windows, and `{error, text}` of a refused request.
    Send { qp: String, wrs: Vec<Request> },
    /// Like `Send`, without `rkeys`.
    Recv { qp: Option<String>, srq: Option<String>, wrs: Vec<Receive> },
    /// `timeout` in seconds.
    Poll { cq: String, count: Count, timeout: Timeout },
    /// `[{event}]`, from this agent with a `reason`.
    Events { count: Count, timeout: Timeout },
    /// Byte `(seed + n) % 251` at `offset + n`.
    Fill { mr: String, offset: Length, length: Length, seed: usize },
    /// `{differs}`: first offset that differs from `fill`, or null.
    Differs { mr: String, offset: Length, length: Length, seed: usize },
    /// 8 bytes in host byte order.
    SetWord { mr: String, offset: Length, value: u64 },
    /// `{value}`.
    Word { mr: String, offset: Length },
    /// `{NAME: value}`, the device's.
    Counters {},
    /// An object of any kind.
    Destroy { name: String },
    /// Destroys all objects, and discards all events.
    Clear {},
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateQp {
    pub(crate) name: Name,
    pub(crate) pd: String,
    #[serde(rename = "type")]
    pub(crate) qp_type: String,
    pub(crate) send_cq: String,
    pub(crate) recv_cq: String,
    pub(crate) srq: Option<String>,
    #[serde(default = "caps", with = "Caps")]
    pub(crate) caps: QpCaps,
    #[serde(default)]
    pub(crate) sq_sig_all: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Transition {
    Reset {},
    Init {
        #[serde(default)]
        access: Vec<String>,
        #[serde(default)]
        qkey: u32,
    },
    /// UD has no attributes, UC all but the last two.
    Rtr {
        peer: Option<Peer>,
        #[serde(default)]
        rq_psn: u32,
        #[serde(default)]
        max_dest_rd_atomic: u8,
        #[serde(default)]
        min_rnr_timer: u8,
    },
    /// Only RC has more than the first.
    Rts {
        sq_psn: u32,
        #[serde(default)]
        timeout: u8,
        #[serde(default)]
        retry_cnt: u8,
        #[serde(default)]
        rnr_retry: u8,
        #[serde(default)]
        max_rd_atomic: u8,
    },
    /// SQD or SQE to RTS.
    Resume {},
    Sqd {
        notify: bool,
    },
    Err {},
}

#[derive(Deserialize)]
#[serde(remote = "QpCaps", default = "caps", deny_unknown_fields)]
struct Caps {
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
}

const fn caps() -> QpCaps {
    let (max_send_wr, max_recv_wr) = (64, 64);
    QpCaps { max_send_wr, max_recv_wr, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 64 }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) sges: Vec<Segment>,
    /// Inline bytes, like `fill`'s, instead of `sges`.
    pub(crate) inline: Option<Inline>,
    pub(crate) flags: Vec<String>,
    pub(crate) imm: Option<u32>,
    pub(crate) remote: Option<RemoteAddress>,
    #[serde(default)]
    pub(crate) compare: u64,
    /// Operand of an AtomicETH.
    #[serde(default, rename = "swap", alias = "add")]
    pub(crate) swap_or_add: u64,
    pub(crate) destination: Option<Destination>,
    #[serde(default)]
    pub(crate) rkey: u32,
    pub(crate) bind: Option<Bind>,
    pub(crate) flush: Option<Flush>,
    /// Bypasses rxe's library, which would refuse the request. No effect here.
    #[serde(default, rename = "raw")]
    pub(crate) _raw: bool,
}

/// Objects without unknown members.
macro_rules! objects {
    ($($name:ident { $($field:ident: $kind:ty),+ })+) => {$(
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),+ }
    )+};
}

objects! {
    Peer { address: IpAddr, qpn: u32, path_mtu: u32 }
    Segment { lkey: u32, address: u64, length: u32 }
    Receive { id: u64, sges: Vec<Segment> }
    Inline { length: InlineLength, seed: usize }
    RemoteAddress { address: u64, rkey: u32 }
    Destination { address: IpAddr, qpn: u32, qkey: u32 }
    Bind { window: String, region: String, offset: Length, length: Length, access: Vec<String> }
    Flush { length: u32, placement: Vec<String>, whole: bool }
}
