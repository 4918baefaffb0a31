//! The device under test, as the runner sees it.

use std::{net::IpAddr, time::Duration};

use roce_transport::{
    addr::{Mtu, Qpn},
    mem::Access,
    time::Instant,
    wire::NetHeader,
};
use thiserror::Error;

use crate::case::{Bind, Connection, PauseFrames, Queue, Request};

/// A device under test: the network between it and the instrument, and what its program can be told
/// to do.
pub trait Subject {
    /// The program that does at the device what a case says.
    ///
    /// # Errors
    /// [`Trouble`]: there is none, and only packets reach the device.
    fn program(&mut self) -> Result<&mut dyn Program, Trouble>;

    /// The program at the device that listens for connections, whose other behaviour is its own; no
    /// more than one.
    fn listener(&self) -> Option<&Listener>;

    /// Destroys everything that was made.
    ///
    /// # Errors
    /// [`Trouble`]
    fn clear(&mut self) -> Result<(), Trouble>;

    /// The way from the instrument to the device.
    fn route(&self) -> Route;

    /// The present time.
    fn now(&self) -> Instant;

    /// How much later than it was sent a packet may be seen, and a wait be over.
    fn tolerance(&self) -> Duration;

    /// Sends a UDP payload to the device.
    ///
    /// # Errors
    /// [`Trouble::Broken`]
    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<(), Trouble>;

    /// Sends pause frames to the device, or begins to; [`clear`](Self::clear) ends that.
    ///
    /// # Errors
    /// [`Trouble::Unsupported`]: the instrument sends no frames of its own making.
    fn pause(&mut self, pause: PauseFrames) -> Result<(), Trouble>;

    /// The next UDP payload from the device, or `None` when it is `until`.
    ///
    /// # Errors
    /// [`Trouble::Broken`]
    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>, Trouble>;
}

/// Commands to the program of a device.
///
/// The objects are few; only regions have names. Queue pairs have a completion queue for each
/// direction, and one queue pair is [chosen](Self::choose). Receive requests use the region
/// `inbox`.
pub trait Program {
    /// Registers so many bytes of zeros.
    ///
    /// # Errors
    /// [`Trouble`]
    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<RemoteRegion, Trouble>;

    /// Makes a queue pair besides those that there are, and brings it to RTS, connected to the
    /// instrument's queue pair.
    ///
    /// # Errors
    /// [`Trouble`]
    fn connect(&mut self, connection: &Connection, peer: Qpn) -> Result<Qpn, Trouble>;

    /// Makes this the queue pair of later commands; the index is the order of creation, from 0.
    fn choose(&mut self, pair: usize);

    /// Posts a receive request for so many bytes.
    ///
    /// # Errors
    /// [`Trouble`]
    fn post_receive(&mut self, id: u64, offset: u32, bytes: u32) -> Result<(), Trouble>;

    /// Posts a send request.
    ///
    /// # Errors
    /// [`Trouble`]
    fn post_send(&mut self, request: &Request, peer: Qpn) -> Result<(), Trouble>;

    /// Posts the bind of a memory window.
    ///
    /// # Errors
    /// [`Trouble`]
    fn bind(&mut self, bind: &Bind) -> Result<RemoteRegion, Trouble>;

    /// Posts the invalidation of a memory window.
    ///
    /// # Errors
    /// [`Trouble`]
    fn invalidate(&mut self, id: u64, window: &str) -> Result<(), Trouble>;

    /// Attaches the queue pair to a multicast group.
    ///
    /// # Errors
    /// [`Trouble`]
    fn join(&mut self, group: IpAddr) -> Result<(), Trouble>;

    /// Writes a [pattern](crate::case::pattern).
    ///
    /// # Errors
    /// [`Trouble`]
    fn fill(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<(), Trouble>;

    /// First offset at which memory is not as [`fill`](Self::fill) writes it.
    ///
    /// # Errors
    /// [`Trouble`]
    fn differs(
        &mut self,
        region: &str,
        offset: u32,
        bytes: u32,
        seed: u32,
    ) -> Result<Option<u32>, Trouble>;

    /// Sets an 8-byte word, in the host's byte order.
    ///
    /// # Errors
    /// [`Trouble`]
    fn set_word(&mut self, region: &str, offset: u32, value: u64) -> Result<(), Trouble>;

    /// An 8-byte word, in the host's byte order.
    ///
    /// # Errors
    /// [`Trouble`]
    fn word(&mut self, region: &str, offset: u32) -> Result<u64, Trouble>;

    /// Takes what has completed.
    ///
    /// # Errors
    /// [`Trouble`]
    fn completions(&mut self, queue: Queue) -> Result<Vec<Completion>, Trouble>;

    /// State of the queue pair, as verbs name it without `IBV_QPS_`.
    ///
    /// # Errors
    /// [`Trouble`]
    fn state(&mut self) -> Result<String, Trouble>;

    /// The greatest path MTU.
    fn mtu(&self) -> Mtu;
}

/// A program that listens for reliable connections, in the port space `RDMA_PS_TCP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Its port.
    pub port: u16,
    /// Private data that it wants in a request, behind the IP header; at most 56 bytes.
    pub private_data: Vec<u8>,
    /// A number that requests of earlier runs did not have: the device may remember those.
    pub seed: u32,
}

/// Addresses of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The instrument's.
    pub own: IpAddr,
    /// The device's.
    pub device: IpAddr,
    /// UDP port that the instrument sends from.
    pub src_port: u16,
    /// IPv4 identification of what the instrument sends.
    pub id: u16,
}

/// Memory that the device has registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRegion {
    /// Address of its first byte.
    pub address: u64,
    /// Key.
    pub rkey: u32,
}

/// A completion at the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Id of the request.
    pub id: u64,
    /// Status, as verbs name it without `IBV_WC_`.
    pub status: String,
    /// Length, which counts for a success only.
    pub bytes: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// A packet from the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// Its network headers.
    pub net: NetHeader,
    /// UDP payload.
    pub bytes: Vec<u8>,
}

/// Why a case could not be played to its end.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Trouble {
    /// The device has no such thing.
    #[error("the device refuses: {0}")]
    Unsupported(String),
    /// The instrument, or the way to the device or its agent, does not work.
    #[error("{0}")]
    Broken(String),
}
