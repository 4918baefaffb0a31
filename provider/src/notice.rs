//! System refusals, as `tracing` events with their own target.
//!
//! Libraries print nothing. C programs and the tool print these events (`environment::init_log`).

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::warn;

pub(crate) const TARGET: &str = "roce::missing";

pub(crate) struct OptionalFeature {
    /// C name.
    name: &'static str,
    /// Consequence of absence.
    without: &'static str,
    said: AtomicBool,
}

impl OptionalFeature {
    pub(crate) const fn new(name: &'static str, without: &'static str) -> Self {
        Self { name, without, said: AtomicBool::new(false) }
    }

    /// Reports once per process.
    pub(crate) fn refused(&self, error: &io::Error) {
        if !self.said.swap(true, Ordering::Relaxed) {
            let Self { name, without, .. } = self;
            warn!(target: TARGET, "the system refuses {name} ({error}): {without}");
        }
    }

    pub(crate) fn ask(&self, result: io::Result<()>) {
        result.unwrap_or_else(|error| self.refused(&error));
    }
}

/// True if a system or sandbox lacks the feature.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    const REFUSALS: [i32; 6] = [
        libc::EPERM,
        libc::EACCES,
        libc::ENOSYS,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EAFNOSUPPORT,
    ];
    error.raw_os_error().is_some_and(|error| REFUSALS.contains(&error))
}

#[cfg(feature = "log")]
pub(crate) use lines::Lines;

#[cfg(feature = "log")]
mod lines {
    use std::fmt;

    use tracing::{
        Event, Level, Metadata, Subscriber,
        field::{Field, Visit},
        level_filters::LevelFilter,
        span,
    };

    use super::TARGET;
    use crate::{cancel::Uncancelled, report};

    /// Keeps nothing, unlike a registry, which each C program would have to build.
    pub(crate) struct Lines;

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event() && metadata.target() == TARGET
        }

        fn max_level_hint(&self) -> Option<LevelFilter> {
            Some(Level::WARN.into())
        }

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            let _uncancelled = Uncancelled::begin();
            report::line(line.0);
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.0 = format!("{value:?}");
            }
        }
    }
}
