//! Channels between two devices of the host: a ring each way.

use std::{io, mem, net::IpAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use roce_transport::{adapter::Transmit, time::Instant};

use super::{
    peer::ForwardHeader,
    ring::{Reader, RunHeader, Writer},
    sender::ShmSender,
    socket::{is_closed, receive_with},
};
use crate::link::{Datagram, DatagramMeta};

/// Time between two attempts to connect to an address's socket.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// Channel to another device, through a ring that this one writes.
pub(super) enum OutgoingChannel {
    /// There is none, and none is requested before this time.
    Absent(Instant),
    /// Requested, not yet granted.
    Requested(OwnedFd, Writer),
    Open(OwnedFd, Box<ShmSender>),
}

impl OutgoingChannel {
    /// Opens if there is an answer, and closes if the other process has ended.
    pub(super) fn update(&mut self, now: Instant) {
        *self = match mem::replace(self, Self::Absent(now)) {
            Self::Requested(socket, writer) => match receive_with(&socket, &mut [0]) {
                Ok((1.., mut descriptors)) if descriptors.len() == 1 => {
                    let wakeup = descriptors.remove(0);
                    Self::Open(socket, Box::new(ShmSender::new(writer, wakeup)))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Self::Requested(socket, writer)
                }
                _ => Self::Absent(now.plus(RETRY)),
            },
            Self::Open(socket, _) if is_closed(&socket) => Self::Absent(now),
            other => other,
        };
    }
}

/// Channel from another device.
pub(super) struct IncomingChannel {
    /// `None`: from the owner of the own address, which says of each datagram where it comes from.
    pub(super) src: Option<IpAddr>,
    pub(super) dst: IpAddr,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) reader: Reader,
    /// The other process has ended; what it wrote before is still to be read.
    pub(super) closed: bool,
    /// The ring holds what cannot be.
    pub(super) broken: bool,
}

impl IncomingChannel {
    pub(super) const fn new(
        src: Option<IpAddr>,
        dst: IpAddr,
        socket: Arc<OwnedFd>,
        reader: Reader,
    ) -> Self {
        Self { src, dst, socket, reader, closed: false, broken: false }
    }

    /// Hands over the datagrams of a run that was read into `buffer`.
    pub(super) fn hand_over(
        &self,
        header: RunHeader,
        buffer: &[u8],
        sink: &mut dyn FnMut(&Datagram<'_>),
    ) {
        let RunHeader { length, segment, traffic_class, hop_limit, src_port, checksum_verified } =
            header;
        let dst = self.dst;
        let Some(src) = self.src else {
            if let Some((net, meta, bytes)) = ForwardHeader::read(&header, dst, &buffer[..length]) {
                sink(&Datagram { net: &net, bytes, meta });
            }
            return;
        };
        let meta = DatagramMeta { checksum_verified, ..DatagramMeta::default() };
        let run =
            Transmit { src, dst, src_port, traffic_class, hop_limit, segment, range: 0..length };
        for (index, bytes) in buffer[..length].chunks(segment).enumerate() {
            sink(&Datagram { net: &run.net_header(index), bytes, meta });
        }
    }
}
