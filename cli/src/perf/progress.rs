use std::{
    cell::Cell,
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::Amount;

/// Before a bar appears; between updates.
const LONG: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    amount: Amount,
    start: Instant,
    next: Cell<Instant>,
}

impl Bar {
    pub(super) fn new(is_shown: bool, amount: Amount, qps: u64) -> Self {
        let length = match amount {
            Amount::Iters(count) => u64::from(count) * qps,
            Amount::Time(time) => time.as_millis() as u64,
        };
        let bar = (is_shown && stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("{wide_bar} {percent}% {eta} left");
            style.map_or(bar.clone(), |style| bar.clone().with_style(style))
        });
        let start = Instant::now();
        Self { bar, amount, start, next: Cell::new(start + LONG) }
    }

    pub(super) fn look(&self, now: Instant, messages: u64) {
        let Some(bar) = &self.bar else { return };
        if now < self.next.get() {
            return;
        }
        self.next.set(now + BETWEEN);
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_position(match self.amount {
            Amount::Iters(_) => messages,
            Amount::Time(_) => (now - self.start).as_millis() as u64,
        });
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
