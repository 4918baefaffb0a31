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
    /// From 0.
    pub number: u64,
    /// Time of the adapters' clock.
    pub at: Duration,
    /// Direction.
    pub way: Direction,
    /// Network header.
    pub net: &'a NetHeader,
    /// UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// Network's verdict.
    pub verdict: &'a Verdict,
}

/// Viewer of a scenario. An error stops the scenario.
pub trait Viewer {
    /// Shows a paragraph of the scenario.
    fn say(&mut self, text: &str) -> Result<(), Failure>;

    /// Shows a line of figures.
    fn figures(&mut self, text: &str) -> Result<(), Failure>;

    /// Shows a ladder line.
    fn line(&mut self, line: Line) -> Result<(), Failure>;

    /// Receives a datagram before the line that shows it.
    fn datagram(&mut self, _datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Receives every record, shown or not.
    fn record(&mut self, _end: End, _record: &Record) {}
}
