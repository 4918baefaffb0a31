//! Capture files of a device.

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

/// A datagram between adapter and link.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Time since the Unix epoch.
    pub at: Duration,
    /// Direction, from the device.
    pub direction: Direction,
    /// Network header.
    pub net: &'a NetHeader,
    /// UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// Disposition of a received datagram.
    pub disposition: Option<Disposition>,
    /// Queue pair that sent a received datagram: the receiver's peer.
    pub sender_qp: Option<Qpn>,
}

impl Observed<'_> {
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

/// Observer of a device's datagrams and raw packets. Called under the device's lock: be quick, and
/// do not use the device.
pub trait Observer: Send {
    /// Observes a datagram.
    fn observe(&mut self, observed: &Observed<'_>);

    /// Observes a raw packet at this Unix time: sent by a queue pair, or taken or dropped by a
    /// flow.
    fn observe_frame(&mut self, at: Duration, direction: Direction, frame: &[u8]) {
        let _ = (at, direction, frame);
    }
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// A [`CaptureWriter`] into a file. Comments of received packets have the disposition and the
/// sending queue pair.
pub struct Capture {
    writer: CaptureWriter<BufWriter<File>>,
}

impl Capture {
    /// Creates or overwrites a file, readable by its user alone.
    ///
    /// # Errors
    /// If the file cannot be written, or is a link outside /dev and /proc: its maker would choose
    /// the overwritten file.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::to(open_file(path.as_ref(), true)?)
    }

    pub(super) fn to(file: File) -> io::Result<Self> {
        let writer = CaptureWriter::new(BufWriter::new(file))?;
        Ok(Self { writer })
    }

    /// See [`CaptureWriter::write`].
    ///
    /// # Errors
    /// As [`CaptureWriter::write`].
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

opaque_debug!(Capture);

impl Observer for Capture {
    fn observe(&mut self, observed: &Observed<'_>) {
        let comment = observed.disposition.map(|disposition| {
            let text = disposition.to_string();
            observed.sender_qp.map_or_else(|| text.clone(), |qpn| with_sender(&text, qpn))
        });
        // A full disk must not stop the adapter; the file ends there.
        let _ = self.write(observed.at, observed.net, observed.bytes, comment);
    }

    fn observe_frame(&mut self, at: Duration, _: Direction, frame: &[u8]) {
        let _ = self.writer.write_frame(at, frame);
    }
}

/// Creates the file for its user alone: packets have keys and memory contents. Refuses links.
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

pub(super) fn link_refused() -> io::Error {
    let message = "it is a symbolic link, whose target is not overwritten; name the target";
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// True for the system's own links, such as /dev/stdout or /proc/self/fd/3.
pub(super) fn is_the_systems(path: &Path) -> bool {
    let place = path.parent().and_then(|place| fs::canonicalize(place).ok());
    place.is_some_and(|place| place == Path::new("/dev") || place.starts_with("/proc"))
}
