//! Behaviour of the adapter that depends on `ROCE_AS`: its errors, and flags of its completions.

use std::sync::OnceLock;

use libc::c_int;
use roce_provider::{Profile, environment, errnos};

/// The error for an object beyond its limit, which is 0 for what the adapter lacks.
pub(crate) fn too_many(limit: usize) -> c_int {
    match limit {
        0 => number("errno.missing", libc::ENOMEM),
        _ => number("errno.objects", libc::ENOMEM),
    }
}

/// The error for a size beyond its limit.
pub(crate) fn size() -> c_int {
    number("errno.sizes", libc::EINVAL)
}

/// True if the completion of every receive says that there is a GRH, as if it were a datagram's.
pub(crate) fn receives_have_grh() -> bool {
    static HAVE: OnceLock<bool> = OnceLock::new();
    *HAVE.get_or_init(|| text("completions.grh") == Some("receives"))
}

fn number(key: &str, otherwise: c_int) -> c_int {
    text(key).and_then(errnos::number).unwrap_or(otherwise)
}

fn text(key: &str) -> Option<&'static str> {
    static PROFILE: OnceLock<Option<Profile>> = OnceLock::new();
    // a wrong one was reported when the devices were listed
    let profile = PROFILE.get_or_init(|| environment::profile().ok().flatten());
    profile.as_ref().and_then(|profile| profile.text(key))
}
