//! Analysis of captures: connections, reasons, faults, figures.
//!
//! The analysis follows the state of both ends and gives only proven reasons; if several are
//! possible, all. Captures at the retransmitting end show most: elsewhere a captured NAK may be
//! lost later.

mod analysis;
mod connection;
mod end;
mod explained;
mod file;
mod finding;
mod fit;
mod flow;
mod frame;
mod icrc;
mod matching;
mod naks;
mod network;
mod pairing;
mod placing;
mod psn;
mod reason;
mod talk;

pub use connection::{Connection, EndPoint, EndSummary, RoundTrips};
pub use explained::{Explained, ExplainedPacket, Requester};
pub use file::CaptureError;
pub use finding::{Finding, FindingKind};
pub use icrc::WrongIcrcs;
pub use network::{Address, Network};
pub use reason::{Cause, Causes, Explanation};

impl Explained {
    /// Explains a pcap or pcapng file; [`CaptureError`] for others.
    pub fn of_file(file: &[u8]) -> Result<Self, CaptureError> {
        let mut analysis = analysis::Analysis::default();
        let complete = file::frames(file, &mut |frame| analysis.take(&frame))?;
        Ok(analysis.finish(complete))
    }
}
