//! Captures of a device, in files.

use std::{
    fmt,
    fs::{self, File},
    io::{self, BufWriter},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use roce_capture::{CaptureWriter, with_sender};
use roce_transport::{
    adapter::{Adapter, IcrcCheck, Receipt},
    addr::Qpn,
    event::Disposition,
    wire::{Datagram, NetHeader, Packet, Service},
};
use rustix::{fs::OFlags, io::Errno};

use crate::fabric::Direction;

/// A datagram on its way between adapter and link.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Time of day, since the Unix epoch.
    pub at: Duration,
    /// Direction, seen from the device.
    pub direction: Direction,
    /// Network header.
    pub net: &'a NetHeader,
    /// UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// Disposition of a received datagram.
    pub disposition: Option<Disposition>,
    /// Queue pair that has sent a received datagram: the one that its receiver is connected to.
    pub sender_qp: Option<Qpn>,
}

impl Observed<'_> {
    /// The queue pair that has sent a received datagram.
    pub(crate) fn sender(
        adapter: &Adapter,
        datagram: &Datagram<'_>,
        receipt: &Receipt,
    ) -> Option<Qpn> {
        let headers = Packet::parse(datagram.bytes).ok()?.headers;
        let qp = adapter.query_qp(headers.bth().dest_qp)?;
        let is_its = qp.av.is_some_and(|av| av.dgid.to_ip() == datagram.net.src);
        let connected = headers.bth().opcode.service() != Service::Ud;
        (connected && is_its && receipt.icrc != IcrcCheck::Wrong).then_some(qp.dest_qpn)
    }
}

/// Sees every datagram of a device, and every frame of its queue pairs of raw packets. Called under
/// the device's lock: it must be quick and must not use the device.
pub trait Observer: Send {
    /// A datagram passed.
    fn observe(&mut self, observed: &Observed<'_>);

    /// An Ethernet frame passed, at this time of day since the Unix epoch: it was sent by a queue
    /// pair of raw packets, or a flow takes or drops it.
    fn observe_frame(&mut self, at: Duration, direction: Direction, frame: &[u8]) {
        let _ = (at, direction, frame);
    }
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// A [`CaptureWriter`] into a file. What became of a received packet is its comment, with the queue
/// pair that has sent it.
pub struct Capture {
    writer: CaptureWriter<BufWriter<File>>,
}

impl Capture {
    /// Starts a capture in a new file, which its user alone can read, or in one that is
    /// overwritten.
    ///
    /// # Errors
    /// When the file cannot be written, or is a link: who made that says what is overwritten. Links
    /// in /dev and /proc, such as /dev/stdout, are the system's, and followed.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::to(open_file(path.as_ref(), true)?)
    }

    /// Starts a capture in an empty file.
    pub(super) fn to(file: File) -> io::Result<Self> {
        let writer = CaptureWriter::new(BufWriter::new(file))?;
        Ok(Self { writer })
    }

    /// Adds a datagram, as [`CaptureWriter::write`] says.
    ///
    /// # Errors
    /// The same.
    pub fn write(
        &mut self,
        at: Duration,
        net: &NetHeader,
        bytes: &[u8],
        comment: Option<String>,
    ) -> io::Result<()> {
        self.writer.write(at, net, bytes, comment)
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl Observer for Capture {
    fn observe(&mut self, observed: &Observed<'_>) {
        let comment = observed.disposition.map(|disposition| {
            let text = disposition.to_string();
            observed.sender_qp.map_or_else(|| text.clone(), |qpn| with_sender(&text, qpn))
        });
        // A full disk must not stop the adapter; the file ends where it was full.
        let _ = self.write(observed.at, observed.net, observed.bytes, comment);
    }

    fn observe_frame(&mut self, at: Duration, _: Direction, frame: &[u8]) {
        let _ = self.writer.write_frame(at, frame);
    }
}

/// Opens a capture's file, which is made for its user alone if there is none: packets have keys and
/// contents of memory in them. A link is refused with one line.
pub(super) fn open_file(path: &Path, truncate: bool) -> io::Result<File> {
    let flags = if is_the_systems(path) { OFlags::empty() } else { OFlags::NOFOLLOW };
    let mut options = File::options();
    options.write(true).create(true).truncate(truncate).mode(0o600);
    let flags = (flags | OFlags::CLOEXEC).bits().cast_signed();
    options.custom_flags(flags).open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => link_refused(),
        _ => error,
    })
}

/// What is said of a link: others may have made it, and it would choose what is overwritten.
pub(super) fn link_refused() -> io::Error {
    let message = "it is a link, and what that leads to is not overwritten; name the file itself";
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Whether a link by this path would be one of the system's own, such as /dev/stdout or
/// /proc/self/fd/3.
pub(super) fn is_the_systems(path: &Path) -> bool {
    let place = path.parent().and_then(|place| fs::canonicalize(place).ok());
    place.is_some_and(|place| place == Path::new("/dev") || place.starts_with("/proc"))
}
