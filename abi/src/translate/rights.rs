//! Access rights (`enum ibv_access_flags`).

use std::ffi::c_uint;

use roce_provider::transport::mem::Access;

use crate::{
    errno::{Errno, Result},
    layout::consts::*,
    rule::Rule,
};

/// Flags that are not rights: ways to register, and hints that need not be followed.
const NO_RIGHTS: c_uint =
    IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

/// The rights among access flags, whose numbers are the same here; `EINVAL` for unknown ones.
pub(crate) fn from_c(flags: c_uint) -> Result<Access> {
    Access::from_bits(flags & !NO_RIGHTS).ok_or(Errno::of(Rule::AccessFlags))
}
