//! The errors that the adapter gives as which devices show themselves (`ROCE_AS`).

use std::sync::OnceLock;

use libc::c_int;
use roce_provider::{Profile, environment};

const NUMBERS: [(&str, c_int); 7] = [
    ("EINVAL", libc::EINVAL),
    ("ENOMEM", libc::ENOMEM),
    ("ENOSPC", libc::ENOSPC),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EOVERFLOW", libc::EOVERFLOW),
    ("EBUSY", libc::EBUSY),
    ("E2BIG", libc::E2BIG),
];

/// That of an object beyond its limit, which is 0 for what the adapter lacks.
pub(crate) fn too_many(limit: usize) -> c_int {
    match limit {
        0 => number("errno.missing", libc::ENOMEM),
        _ => number("errno.objects", libc::ENOMEM),
    }
}

/// That of a size beyond its limit.
pub(crate) fn size() -> c_int {
    number("errno.sizes", libc::EINVAL)
}

fn number(key: &str, otherwise: c_int) -> c_int {
    static PROFILE: OnceLock<Option<Profile>> = OnceLock::new();
    // a wrong one was reported when the devices were listed
    let profile = PROFILE.get_or_init(|| environment::profile().ok().flatten());
    let name = profile.as_ref().and_then(|profile| profile.text(key));
    let number = NUMBERS.iter().find(|(known, _)| Some(*known) == name);
    number.map_or(otherwise, |(_, number)| *number)
}
