//! Errors and completion flags that depend on `ROCE_AS`.

use std::sync::OnceLock;

use libc::c_int;
use roce_provider::{Profile, environment, errnos};

/// Error of too many objects; limit 0: unsupported.
pub(crate) fn too_many(limit: usize) -> c_int {
    match limit {
        0 => number("errno.missing", libc::ENOMEM),
        _ => number("errno.objects", libc::ENOMEM),
    }
}

pub(crate) fn size() -> c_int {
    number("errno.sizes", libc::EINVAL)
}

/// True if every receive reports a GRH, like a datagram.
pub(crate) fn receives_have_grh() -> bool {
    static HAVE: OnceLock<bool> = OnceLock::new();
    *HAVE.get_or_init(|| text("completions.grh") == Some("receives"))
}

fn number(key: &str, otherwise: c_int) -> c_int {
    text(key).and_then(errnos::number).unwrap_or(otherwise)
}

fn text(key: &str) -> Option<&'static str> {
    static PROFILE: OnceLock<Option<Profile>> = OnceLock::new();
    // errors were reported with the list of devices
    let profile = PROFILE.get_or_init(|| environment::profile().ok().flatten());
    profile.as_ref().and_then(|profile| profile.text(key))
}
