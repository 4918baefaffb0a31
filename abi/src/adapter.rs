//! Errors and completion flags that depend on `ROCE_AS`.

use std::sync::OnceLock;

use libc::c_int;
use roce_provider::{Profile, environment, errnos};

/// A limit of 0 means unsupported.
pub(crate) fn too_many(limit: usize) -> c_int {
    match limit {
        0 => number("errno.missing", libc::ENOMEM),
        _ => number("errno.objects", libc::ENOMEM),
    }
}

pub(crate) fn size() -> c_int {
    number("errno.sizes", libc::EINVAL)
}

/// True if non-datagram receives report a GRH too.
pub(crate) fn receives_have_grh() -> bool {
    static HAVE: OnceLock<bool> = OnceLock::new();
    *HAVE.get_or_init(|| text("completions.grh") == Some("receives"))
}

fn number(key: &str, otherwise: c_int) -> c_int {
    text(key).and_then(errnos::number).unwrap_or(otherwise)
}

fn text(key: &str) -> Option<&'static str> {
    static PROFILE: OnceLock<Option<Profile>> = OnceLock::new();
    // listing devices reports the errors
    let profile = PROFILE.get_or_init(|| environment::profile().ok().flatten());
    profile.as_ref().and_then(|profile| profile.text(key))
}
