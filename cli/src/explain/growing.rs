//! A growing capture, drawn as packets arrive.

use std::time::Duration;

use roce::explain::Explained;

use super::report::{self, Filter};
use crate::ladder::{Ladder, Tone};

/// Poll interval. A later response may first appear as another connection's.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Drawing takes at most 1/10 of the time, as each redraw reads the whole capture.
pub(crate) const SHARE: u32 = 10;
pub(crate) const MOST: usize = 64 << 20;

#[derive(Default)]
pub(crate) struct Growing {
    pub(crate) bytes: Vec<u8>,
    explained: Option<Explained>,
    drawn: usize,
    connection: Option<usize>,
}

impl Growing {
    #[cfg(target_os = "linux")]
    pub(crate) const fn leave(&mut self) {
        self.connection = None;
    }

    /// `name` precedes a connection's title.
    pub(crate) fn draw(&mut self, ladder: &Ladder, filter: &Filter, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        // An incomplete file may become a capture.
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

    pub(crate) fn conclusion(&self, ladder: &Ladder, filter: &Filter) -> Option<Vec<String>> {
        let explained = self.explained.as_ref()?;
        Some(report::conclusion(ladder, explained, filter))
    }
}
