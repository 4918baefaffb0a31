use std::{fs, path::Path, sync::OnceLock, time::Duration};

/// The administrator's defaults, one file per number.
const DIRECTORY: &str = "/etc/rdma/rsocket";

const QUEUE: (u32, u32) = (16, 4096);
const BUFFER: (u32, u32) = (4096, 1 << 28);
const INLINE: u32 = 512;

/// Sizes of an rsocket's later connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    send_buffer: u32,
    receive_buffer: u32,
    send_queue: u32,
    receive_queue: u32,
    inline: u32,
    mappings: u32,
}

const POLLING: Duration = Duration::from_micros(10);

impl Settings {
    const DEFAULT: Self = Self {
        send_buffer: 1 << 17,
        receive_buffer: 1 << 17,
        send_queue: 384,
        receive_queue: 384,
        inline: 64,
        mappings: 0,
    };

    /// The administrator's defaults, or librdmacm's.
    pub(super) fn of_host() -> Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        *SETTINGS.get_or_init(|| Self::read(Path::new(DIRECTORY)))
    }

    fn read(directory: &Path) -> Self {
        let mut settings = Self::DEFAULT;
        let with = |name: &str, set: &mut dyn FnMut(u32)| number(directory, name).map_or((), set);
        with("wmem_default", &mut |bytes| settings.set_send_buffer(bytes));
        with("mem_default", &mut |bytes| settings.set_receive_buffer(bytes));
        with("sqsize_default", &mut |slots| settings.set_send_queue(slots));
        with("rqsize_default", &mut |slots| settings.set_receive_queue(slots));
        with("inline_default", &mut |bytes| settings.set_inline(bytes));
        with("iomap_size", &mut |entries| settings.set_mappings(entries));
        settings
    }

    /// Most unacknowledged bytes (`SO_SNDBUF`).
    #[must_use]
    pub const fn send_buffer(&self) -> u32 {
        self.send_buffer
    }

    /// Sets `SO_SNDBUF`, clamped.
    pub fn set_send_buffer(&mut self, bytes: u32) {
        self.send_buffer = bytes.clamp(BUFFER.0, BUFFER.1);
    }

    /// Bytes that the peer may send ahead (`SO_RCVBUF`).
    #[must_use]
    pub const fn receive_buffer(&self) -> u32 {
        self.receive_buffer
    }

    /// Sets `SO_RCVBUF`, clamped.
    pub fn set_receive_buffer(&mut self, bytes: u32) {
        // of two halves
        self.receive_buffer = bytes.clamp(BUFFER.0, BUFFER.1).next_multiple_of(2);
    }

    /// Most data messages in flight (`RDMA_SQSIZE`).
    #[must_use]
    pub const fn send_queue(&self) -> u32 {
        self.send_queue
    }

    /// Sets `RDMA_SQSIZE`, clamped.
    pub fn set_send_queue(&mut self, slots: u32) {
        self.send_queue = slots.clamp(QUEUE.0, QUEUE.1);
    }

    /// Data messages that the peer may send ahead (`RDMA_RQSIZE`).
    #[must_use]
    pub const fn receive_queue(&self) -> u32 {
        self.receive_queue
    }

    /// Sets `RDMA_RQSIZE`, clamped.
    pub fn set_receive_queue(&mut self, slots: u32) {
        self.receive_queue = slots.clamp(QUEUE.0, QUEUE.1);
    }

    /// Most inline bytes (`RDMA_INLINE`).
    #[must_use]
    pub const fn inline(&self) -> u32 {
        self.inline
    }

    /// Sets `RDMA_INLINE`, clamped.
    pub fn set_inline(&mut self, bytes: u32) {
        self.inline = bytes.min(INLINE);
    }

    /// Most peer mappings for `riowrite` (`RDMA_IOMAPSIZE`).
    #[must_use]
    pub const fn mappings(&self) -> u32 {
        self.mappings
    }

    /// Sets `RDMA_IOMAPSIZE`, clamped.
    pub fn set_mappings(&mut self, entries: u32) {
        self.mappings = entries.min(u8::MAX.into());
    }
}

/// Time to busy-poll before sleeping.
#[must_use]
pub fn polling_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| {
        number(Path::new(DIRECTORY), "polling_time")
            .map_or(POLLING, |microseconds| Duration::from_micros(microseconds.into()))
    })
}

fn number(directory: &Path, name: &str) -> Option<u32> {
    fs::read_to_string(directory.join(name)).ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrator_sets_defaults_within_limits() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Settings::read(directory.path()), Settings::DEFAULT);
        for (name, value) in [
            ("wmem_default", "1000000\n"),
            ("mem_default", "100001"),
            ("sqsize_default", "2"),
            ("rqsize_default", "99999999"),
            ("inline_default", "many"),
            ("iomap_size", "1000 # too many"),
        ] {
            fs::write(directory.path().join(name), value).unwrap();
        }
        let expected = Settings {
            send_buffer: 1_000_000,
            receive_buffer: 100_002,
            send_queue: 16,
            receive_queue: 4096,
            inline: 64,
            mappings: 255,
        };
        assert_eq!(Settings::read(directory.path()), expected);
    }
}
