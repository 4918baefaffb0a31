//! C's structures and constants. Tests compare all with recorded and installed headers.

#![allow(non_camel_case_types, reason = "names as in C")]
#![allow(dead_code, reason = "programs read what nothing here does")]
#![allow(non_snake_case, reason = "as above")]

mod attr;
mod cm;
pub(crate) mod consts;
mod declare;
mod kernel;
mod sized;
#[cfg(test)]
mod tests;
mod verbs;

pub(crate) use self::{attr::*, cm::*, kernel::*, sized::*, verbs::*};
