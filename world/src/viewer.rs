//! The receiver of a scenario's lines.

use std::time::Duration;

use roce_fabric::Verdict;
use roce_transport::{trace::Record, wire::NetHeader};

use crate::{
    failure::Failure,
    line::{End, Line, Way},
};

/// A datagram that an adapter has handed to the network.
#[derive(Clone, Copy, Debug)]
pub struct SentDatagram<'a> {
    /// Its number, counted from 0.
    pub number: u64,
    /// Its time, by the adapters' clock.
    pub at: Duration,
    /// Its way.
    pub way: Way,
    /// Its network header.
    pub net: &'a NetHeader,
    /// Its UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// The network's verdict.
    pub verdict: &'a Verdict,
}

/// A viewer of a world. An error of any of these ends the scenario.
pub trait Viewer {
    /// A paragraph of the scenario's own words.
    ///
    /// # Errors
    /// The viewer's.
    fn say(&mut self, text: &str) -> Result<(), Failure>;

    /// A line of figures.
    ///
    /// # Errors
    /// The viewer's.
    fn figures(&mut self, text: &str) -> Result<(), Failure>;

    /// A line of the ladder.
    ///
    /// # Errors
    /// The viewer's.
    fn line(&mut self, line: Line) -> Result<(), Failure>;

    /// A datagram, before the line that shows it.
    ///
    /// # Errors
    /// The viewer's.
    fn datagram(&mut self, _datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// A record of an adapter, whether a line shows it or not.
    fn record(&mut self, _end: End, _record: &Record) {}
}
