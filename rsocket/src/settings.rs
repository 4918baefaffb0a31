use std::{fs, path::Path, sync::OnceLock, time::Duration};

/// The administrator's defaults, one file per number.
const DIRECTORY: &str = "/etc/rdma/rsocket";

const QUEUE: (u32, u32) = (16, 4096);
const BUFFER: (u32, u32) = (4096, 1 << 28);
const INLINE: u32 = 512;

const POLLING: Duration = Duration::from_micros(10);

/// Sizes: getter, setter, option, the administrator's file, default and bounds.
macro_rules! sizes {
    ($(
        $(#[$doc:meta])*
        $name:ident $set:ident $option:literal $file:literal = $default:expr,
        |$given:ident| $clamped:expr;
    )*) => {
        /// Sizes of an rsocket's later connections.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Settings {
            $($name: u32,)*
        }

        impl Settings {
            const DEFAULT: Self = Self { $($name: $default,)* };

            fn read(directory: &Path) -> Self {
                let mut settings = Self::DEFAULT;
                $(number(directory, $file).into_iter().for_each(|size| settings.$set(size));)*
                settings
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $name(&self) -> u32 {
                    self.$name
                }

                #[doc = concat!("Sets `", $option, "`, clamped.")]
                pub fn $set(&mut self, $given: u32) {
                    self.$name = $clamped;
                }
            )*
        }
    };
}

sizes! {
    /// Most unacknowledged bytes (`SO_SNDBUF`).
    send_buffer set_send_buffer "SO_SNDBUF" "wmem_default" = 1 << 17,
    |bytes| bytes.clamp(BUFFER.0, BUFFER.1);
    /// Bytes that the peer may send ahead (`SO_RCVBUF`), in two halves.
    receive_buffer set_receive_buffer "SO_RCVBUF" "mem_default" = 1 << 17,
    |bytes| bytes.clamp(BUFFER.0, BUFFER.1).next_multiple_of(2);
    /// Most data messages in flight (`RDMA_SQSIZE`).
    send_queue set_send_queue "RDMA_SQSIZE" "sqsize_default" = 384,
    |slots| slots.clamp(QUEUE.0, QUEUE.1);
    /// Data messages that the peer may send ahead (`RDMA_RQSIZE`).
    receive_queue set_receive_queue "RDMA_RQSIZE" "rqsize_default" = 384,
    |slots| slots.clamp(QUEUE.0, QUEUE.1);
    /// Most inline bytes (`RDMA_INLINE`).
    inline set_inline "RDMA_INLINE" "inline_default" = 64,
    |bytes| bytes.min(INLINE);
    /// Most peer mappings for `riowrite` (`RDMA_IOMAPSIZE`).
    mappings set_mappings "RDMA_IOMAPSIZE" "iomap_size" = 0,
    |entries| entries.min(u8::MAX.into());
}

impl Settings {
    /// The administrator's defaults, or librdmacm's.
    pub(super) fn of_host() -> Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        *SETTINGS.get_or_init(|| Self::read(Path::new(DIRECTORY)))
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
