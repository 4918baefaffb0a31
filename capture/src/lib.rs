//! Captures of RoCE packets: [written](CaptureWriter) for Wireshark, and [explained](explain).
//!
//! Nothing here opens a file: a capture is written to whatever takes bytes, and read from memory.

mod comment;
pub mod explain;
mod writer;

pub use comment::with_sender;
pub use writer::{CaptureWriter, ip_packet};
