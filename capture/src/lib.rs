//! Captures of RoCE packets: [written](CaptureWriter) for Wireshark, and [explained](explain).
//!
//! Opens no files: writes to any `Write`, reads from memory.

mod comment;
pub mod explain;
mod writer;

pub use comment::with_sender;
pub use writer::{CaptureWriter, ip_packet};
