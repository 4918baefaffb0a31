//! The device under test as the runner sees it.

use std::{net::IpAddr, time::Duration};

use roce_transport::{
    addr::{Mtu, Qpn},
    mem::Access,
    time::Instant,
    wire::NetHeader,
};
use thiserror::Error;

use crate::case::{Bind, Connection, PauseFrames, Queue, Request};

/// A device under test: network and program.
pub trait Subject {
    /// Returns the program that executes a case's commands at the device.
    ///
    /// # Errors
    /// [`Trouble`]: there is none; only packets reach the device.
    fn program(&mut self) -> Result<&mut dyn Program, Trouble>;

    /// Returns the device's listening program, if any; the rest of its behaviour is its own.
    fn listener(&self) -> Option<&Listener>;

    /// Destroys all created objects.
    ///
    /// # Errors
    /// [`Trouble`]
    fn clear(&mut self) -> Result<(), Trouble>;

    /// Returns the route from the instrument to the device.
    fn route(&self) -> Route;

    /// Returns the present time.
    fn now(&self) -> Instant;

    /// Returns how late a packet may be seen, or a wait end.
    fn tolerance(&self) -> Duration;

    /// Sends a UDP payload to the device.
    ///
    /// # Errors
    /// [`Trouble::Broken`]
    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<(), Trouble>;

    /// Starts sending pause frames to the device; [`clear`](Self::clear) ends that.
    ///
    /// # Errors
    /// [`Trouble::Unsupported`]: the instrument cannot send raw frames.
    fn pause(&mut self, pause: PauseFrames) -> Result<(), Trouble>;

    /// Returns the next UDP payload from the device, or `None` at `until`.
    ///
    /// # Errors
    /// [`Trouble::Broken`]
    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>, Trouble>;
}

/// Commands to a device's program.
///
/// Only regions have names. A queue pair has two completion queues; one queue pair is
/// [chosen](Self::choose). Receive requests use the region `inbox`.
pub trait Program {
    /// Registers zeroed memory.
    ///
    /// # Errors
    /// [`Trouble`]
    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<RemoteRegion, Trouble>;

    /// Makes another queue pair and takes it to RTS, connected to the instrument's.
    ///
    /// # Errors
    /// [`Trouble`]
    fn connect(&mut self, connection: &Connection, peer: Qpn) -> Result<Qpn, Trouble>;

    /// Selects the queue pair of later commands, by creation from 0.
    fn choose(&mut self, pair: usize);

    /// Posts a receive request.
    ///
    /// # Errors
    /// [`Trouble`]
    fn post_receive(&mut self, id: u64, offset: u32, bytes: u32) -> Result<(), Trouble>;

    /// Posts a send request.
    ///
    /// # Errors
    /// [`Trouble`]
    fn post_send(&mut self, request: &Request, peer: Qpn) -> Result<(), Trouble>;

    /// Posts a window bind.
    ///
    /// # Errors
    /// [`Trouble`]
    fn bind(&mut self, bind: &Bind) -> Result<RemoteRegion, Trouble>;

    /// Posts a window invalidation.
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

    /// Returns the first offset that differs from [`fill`](Self::fill).
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

    /// Sets an 8-byte word in host byte order.
    ///
    /// # Errors
    /// [`Trouble`]
    fn set_word(&mut self, region: &str, offset: u32, value: u64) -> Result<(), Trouble>;

    /// Returns an 8-byte word in host byte order.
    ///
    /// # Errors
    /// [`Trouble`]
    fn word(&mut self, region: &str, offset: u32) -> Result<u64, Trouble>;

    /// Returns completions.
    ///
    /// # Errors
    /// [`Trouble`]
    fn completions(&mut self, queue: Queue) -> Result<Vec<Completion>, Trouble>;

    /// Returns the queue pair's state, named as in verbs without `IBV_QPS_`.
    ///
    /// # Errors
    /// [`Trouble`]
    fn state(&mut self) -> Result<String, Trouble>;

    /// Returns the largest path MTU.
    fn mtu(&self) -> Mtu;
}

/// A program that listens in the port space `RDMA_PS_TCP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Its port.
    pub port: u16,
    /// Private data that it requires in a REQ after the IP header; at most 56 bytes.
    pub private_data: Vec<u8>,
    /// Differs from earlier runs, whose requests the device may remember.
    pub seed: u32,
}

/// Addresses of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The instrument.
    pub own: IpAddr,
    /// The device.
    pub device: IpAddr,
    /// The instrument's UDP source port.
    pub src_port: u16,
    /// IPv4 identification of the instrument's packets.
    pub id: u16,
}

/// Memory registered by the device.
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
    /// Request.
    pub id: u64,
    /// Status named as in verbs without `IBV_WC_`.
    pub status: String,
    /// Length; valid on success only.
    pub bytes: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// A packet from the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Time.
    pub at: Instant,
    /// Network headers.
    pub net: NetHeader,
    /// UDP payload.
    pub bytes: Vec<u8>,
}

/// Why a case could not be completed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Trouble {
    /// The device lacks a feature.
    #[error("the device refused a call: {0}")]
    Unsupported(String),
    /// The instrument, or the network to the device or its agent, fails.
    #[error("{0}")]
    Broken(String),
}
