//! `enum ibv_access_flags`.

use roce_provider::transport::mem::Access;

use crate::prelude::*;

/// Modes and hints, not rights.
const NO_RIGHTS: c_uint =
    IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

/// Same numbers in C; `EINVAL` if unknown.
pub(crate) fn from_c(flags: c_uint) -> Result<Access> {
    Access::from_bits(flags & !NO_RIGHTS).ok_or(Errno::of(Rule::AccessFlags))
}
