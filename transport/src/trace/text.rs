use core::fmt;

use super::{Record, What};

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.at.as_nanos();
        write!(
            f,
            "{}.{:09} qp {} {}",
            nanos / 1_000_000_000,
            nanos % 1_000_000_000,
            self.qpn,
            self.what
        )
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent { packet, why } => write!(f, "sent {packet} ({why})"),
            Self::Arrived { packet, disposition } => write!(f, "arrived {packet} ({disposition})"),
            Self::Malformed { length, reason, .. } => {
                write!(f, "arrived {length} bytes (dropped: {reason})")
            }
            Self::Call { call, result: Ok(()) } => write!(f, "{call}"),
            Self::Call { call, result: Err(error) } => write!(f, "{call} failed: {error}"),
            Self::Completed { wr_id, result: Ok(ok) } => {
                write!(f, "request {wr_id} completed: {:?}", ok.opcode)?;
                if ok.byte_len > 0 { write!(f, " of {} B", ok.byte_len) } else { Ok(()) }
            }
            Self::Completed { wr_id, result: Err(error) } => {
                write!(f, "request {wr_id} completed in error: {error}")
            }
            Self::Acknowledged { before } => {
                write!(f, "all PSNs before {} are acknowledged", before.get())
            }
            Self::Recovery { psn, loss, recovery } => {
                write!(f, "psn {} ({loss}): {recovery}", psn.get())
            }
            Self::Timer(timer) => write!(f, "{timer}"),
            Self::State { from, to, failure } => write!(f, "{from} to {to}: {failure}"),
            Self::Window { from, to, cause } => write!(f, "window {from} to {to} B: {cause}"),
            Self::Rate { from, to } => {
                write!(f, "rate {} to {}", Rate(*from), Rate(*to))
            }
        }
    }
}

struct Rate(Option<u64>);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bits) => write!(f, "{}.{:03} Mbit/s", bits / 1_000_000, bits / 1000 % 1000),
            None => f.write_str("unlimited"),
        }
    }
}
