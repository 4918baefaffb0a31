//! A capture that grows: what is new in it is drawn, as the packets have come.

use std::time::Duration;

use roce::explain::Explained;

use super::report::{self, Filter};
use crate::ladder::{Ladder, Tone};

/// Time from one look at a capture to the next. An answer that takes longer may be drawn as part of
/// a connection of its own at first.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Part of its time that the drawing may take: one in so many. Each redraw reads the whole capture.
pub(crate) const SHARE: u32 = 10;
/// Bytes of a capture that are drawn.
pub(crate) const MOST: usize = 64 << 20;

/// A capture, and how much of it is drawn.
#[derive(Default)]
pub(crate) struct Growing {
    pub(crate) bytes: Vec<u8>,
    explained: Option<Explained>,
    drawn: usize,
    /// The connection that was drawn last, whose name need not be said again.
    connection: Option<usize>,
}

impl Growing {
    /// Something else was drawn.
    #[cfg(target_os = "linux")]
    pub(crate) const fn leave(&mut self) {
        self.connection = None;
    }

    /// Lines of what has come. `name` stands before the title of a connection.
    pub(crate) fn draw(&mut self, ladder: &Ladder, filter: &Filter, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        // what is no capture yet may become one
        let Ok(explained) = Explained::of_file(&self.bytes) else { return lines };
        for packet in explained.packets.iter().skip(self.drawn) {
            let Some(index) = packet.connection else { continue };
            let connection = &explained.connections[index];
            if !filter.has_connection(connection) || !filter.has_packet(packet) {
                continue;
            }
            if self.connection != Some(index) {
                let title = format!("{name}{}", report::title(index, connection));
                lines.extend(ladder.prose(&title, Tone::Strong));
                let [one, other] = connection.ends.map(|end| end.to_string());
                lines.extend(ladder.heads(&one, &other));
                self.connection = Some(index);
            }
            lines.extend(report::packet_lines(ladder, connection, packet));
        }
        self.drawn = explained.packets.len();
        self.explained = Some(explained);
        lines
    }

    /// Findings and figures; none if it was no capture.
    pub(crate) fn conclusion(&self, ladder: &Ladder, filter: &Filter) -> Option<Vec<String>> {
        let explained = self.explained.as_ref()?;
        Some(report::conclusion(ladder, explained, filter))
    }
}
