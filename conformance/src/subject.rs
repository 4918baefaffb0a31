//! The device under test as a runner sees it.

use std::{net::IpAddr, time::Duration};

use roce_transport::{
    addr::{Mtu, Qpn},
    mem::Access,
    time::Instant,
    wire::NetHeader,
};
use thiserror::Error;

use crate::case::{Bind, Connection, PauseFrames, Queue, Request};

/// Device under test.
pub trait Subject {
    /// Program that executes a case's commands.
    ///
    /// # Errors
    /// [`SubjectError`]: only packets reach the device.
    fn program(&mut self) -> Result<&mut dyn Program>;

    /// Listening program.
    fn listener(&self) -> Option<&Listener>;

    /// Destroys all objects, and ends pauses.
    fn clear(&mut self) -> Result<()>;

    /// Route from the instrument to the device.
    fn route(&self) -> Route;

    /// Present time.
    fn now(&self) -> Instant;

    /// Greatest delay until a packet is seen or a wait ends.
    fn tolerance(&self) -> Duration;

    /// Sends a UDP payload to the device.
    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<()>;

    /// Sends pause frames until [`clear`](Self::clear).
    ///
    /// # Errors
    /// [`SubjectError::Unsupported`]: the instrument cannot send raw frames.
    fn pause(&mut self, pause: PauseFrames) -> Result<()>;

    /// Next UDP payload from the device; `None` at `until`.
    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>>;
}

/// Commands to a device's program.
///
/// Only regions have names. A queue pair has two completion queues. Commands act on the
/// [chosen](Self::choose) queue pair. Receive requests use the region `inbox`.
pub trait Program {
    /// Registers zeroed memory.
    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<RemoteRegion>;

    /// Makes a queue pair in RTS, connected to `peer`.
    fn connect(&mut self, connection: &Connection, peer: Qpn) -> Result<Qpn>;

    /// Selects a queue pair, by creation from 0.
    fn choose(&mut self, pair: usize);

    /// Posts a receive request.
    fn post_receive(&mut self, id: u64, offset: u32, bytes: u32) -> Result<()>;

    /// Posts a send request.
    fn post_send(&mut self, request: &Request, peer: Qpn) -> Result<()>;

    /// Posts a window bind.
    fn bind(&mut self, bind: &Bind) -> Result<RemoteRegion>;

    /// Posts a window invalidation.
    fn invalidate(&mut self, id: u64, window: &str) -> Result<()>;

    /// Joins a multicast group.
    fn join(&mut self, group: IpAddr) -> Result<()>;

    /// Writes a [pattern](crate::case::pattern).
    fn fill(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<()>;

    /// First offset that differs from [`fill`](Self::fill).
    fn differs(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<Option<u32>>;

    /// Sets an 8-byte word in host byte order.
    fn set_word(&mut self, region: &str, offset: u32, value: u64) -> Result<()>;

    /// Reads an 8-byte word in host byte order.
    fn word(&mut self, region: &str, offset: u32) -> Result<u64>;

    /// Takes completions.
    fn completions(&mut self, queue: Queue) -> Result<Vec<Completion>>;

    /// State, named as in verbs without `IBV_QPS_`.
    fn state(&mut self) -> Result<String>;

    /// Greatest path MTU.
    fn mtu(&self) -> Mtu;
}

/// Program that listens in `RDMA_PS_TCP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Port.
    pub port: u16,
    /// Private data required in a REQ after the IP header; at most 56 bytes.
    pub private_data: Vec<u8>,
    /// Differs from earlier runs, whose requests the device may remember.
    pub seed: u32,
}

/// Addresses of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Instrument.
    pub own: IpAddr,
    /// Device.
    pub device: IpAddr,
    /// Instrument's UDP source port.
    pub src_port: u16,
    /// IPv4 identification of the instrument's packets.
    pub id: u16,
}

/// Registered memory of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRegion {
    /// Address.
    pub address: u64,
    /// Key.
    pub rkey: u32,
}

/// Completion of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Request.
    pub id: u64,
    /// Named as in verbs without `IBV_WC_`.
    pub status: String,
    /// Length, valid on success.
    pub bytes: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// Packet from the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Time.
    pub at: Instant,
    /// Network headers.
    pub net: NetHeader,
    /// UDP payload.
    pub bytes: Vec<u8>,
}

/// Result of a subject's call.
pub type Result<T, E = SubjectError> = std::result::Result<T, E>;

/// Reason for an incomplete case.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SubjectError {
    /// The device lacks a feature.
    #[error("the device refused a call: {0}")]
    Unsupported(String),
    /// The instrument, or the network, fails.
    #[error("{0}")]
    Broken(String),
}
