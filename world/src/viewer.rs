//! Receiver of a scenario's lines.

use std::time::Duration;

use roce_fabric::Verdict;
use roce_transport::{trace::Record, wire::NetHeader};

use crate::{
    failure::Failure,
    line::{Direction, End, Line},
};

/// A datagram handed to the network.
#[derive(Clone, Copy, Debug)]
pub struct SentDatagram<'a> {
    /// Number, from 0.
    pub number: u64,
    /// Time by the adapters' clock.
    pub at: Duration,
    /// Its way.
    pub way: Direction,
    /// Network header.
    pub net: &'a NetHeader,
    /// UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// The network's verdict.
    pub verdict: &'a Verdict,
}

/// Viewer of a world. An error of any method stops the scenario.
pub trait Viewer {
    /// Shows a paragraph of the scenario.
    ///
    /// # Errors
    /// The viewer's.
    fn say(&mut self, text: &str) -> Result<(), Failure>;

    /// Shows a line of figures.
    ///
    /// # Errors
    /// The viewer's.
    fn figures(&mut self, text: &str) -> Result<(), Failure>;

    /// Shows a line of the ladder.
    ///
    /// # Errors
    /// The viewer's.
    fn line(&mut self, line: Line) -> Result<(), Failure>;

    /// Receives a datagram before the line that shows it.
    ///
    /// # Errors
    /// The viewer's.
    fn datagram(&mut self, _datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Receives every record of an adapter, shown or not.
    fn record(&mut self, _end: End, _record: &Record) {}
}
