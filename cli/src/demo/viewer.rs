use roce_world::{Line, SentDatagram, Tone, Viewer};

#[cfg(target_os = "linux")]
use super::keys::Keys;
#[cfg(not(target_os = "linux"))]
use crate::non_linux::{Capture, Keys};
#[cfg(target_os = "linux")]
use roce::link::Capture;

use crate::{failure::Failure, ladder::Ladder, output::outln};

pub(super) struct Printer {
    ladder: Ladder,
    keys: Option<Keys>,
    pub(super) capture: Option<Capture>,
    heads_due: bool,
}

impl Printer {
    pub(super) const fn new(ladder: Ladder, keys: Option<Keys>, capture: Option<Capture>) -> Self {
        Self { ladder, keys, capture, heads_due: true }
    }
}

impl Viewer for Printer {
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        outln!("");
        outln!("{}", self.ladder.prose(text, Tone::Plain).join("\n"));
        self.heads_due = true;
        Ok(())
    }

    fn figures(&mut self, text: &str) -> Result<(), Failure> {
        outln!("{text}");
        Ok(())
    }

    fn line(&mut self, line: Line) -> Result<(), Failure> {
        if std::mem::take(&mut self.heads_due) {
            outln!("");
            outln!("{}", self.ladder.letters());
        }
        outln!("{}", self.ladder.event(line.at, &line.event, line.tone).join("\n"));
        self.keys.as_ref().map_or(Ok(()), Keys::wait)
    }

    fn datagram(&mut self, datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        if let Some(capture) = &mut self.capture {
            let comment = datagram.verdict.lost.then(|| "lost on the way".into());
            capture.write(datagram.at, datagram.net, datagram.bytes, comment)?;
        }
        Ok(())
    }
}
