use std::{error::Error, time::Duration};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// GB/s by message size.
    Throughput,
    /// µs by message size.
    Latency,
    /// GB/s by queue pairs.
    QueuePairs,
    /// Million a second by queue pairs.
    Messages,
    Shards,
    /// Thousand round trips a second by connections.
    EventLoop,
}

impl Kind {
    pub(crate) const fn is_by_size(self) -> bool {
        matches!(self, Self::Throughput | Self::Latency)
    }
}

pub(crate) type Measure = Box<dyn FnMut(usize, Duration) -> Result<f64, Box<dyn Error>>>;

pub(crate) struct Lane {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) most: usize,
    pub(crate) measure: Measure,
}

impl Lane {
    pub(crate) fn new(
        kind: Kind,
        name: &'static str,
        measure: impl FnMut(usize, Duration) -> Result<f64, Box<dyn Error>> + 'static,
    ) -> Self {
        Self { kind, name, most: usize::MAX, measure: Box::new(measure) }
    }

    pub(crate) fn fits(&self, size: usize) -> bool {
        size <= self.most
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

pub(crate) struct Table {
    pub(crate) kind: Kind,
    pub(crate) names: Vec<&'static str>,
    pub(crate) sizes: &'static [usize],
    figures: Vec<Vec<Vec<f64>>>,
}

impl Table {
    pub(crate) fn new(kind: Kind, names: Vec<&'static str>, sizes: &'static [usize]) -> Self {
        let figures = vec![vec![Vec::new(); sizes.len()]; names.len()];
        Self { kind, names, sizes, figures }
    }

    pub(crate) fn add(&mut self, name: &str, size: usize, figure: f64) {
        let lane = self.names.iter().position(|&one| one == name);
        let row = self.sizes.iter().position(|&one| one == size);
        if let (Some(lane), Some(row)) = (lane, row) {
            self.figures[lane][row].push(figure);
        }
    }

    /// `None`: not measured.
    pub(crate) fn cell(&self, name: &str, size: usize) -> Option<Cell> {
        let lane = self.names.iter().position(|&one| one == name)?;
        let row = self.sizes.iter().position(|&one| one == size)?;
        let mut sorted = self.figures[lane][row].clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |quarter: usize| sorted[(last * quarter).div_ceil(4)];
        Some(Cell { median: at(2), low: sorted[last / 4], high: at(3) })
    }

    /// Of medians.
    pub(crate) fn ratio(&self, ours: &str, yardstick: &str, size: usize) -> Option<f64> {
        Some(self.cell(ours, size)?.median / self.cell(yardstick, size)?.median)
    }
}
