mod carried;
mod find;
mod glibc;
mod links;
mod machine;
mod trust;

pub(crate) use find::{contents, find, sockets};
pub(crate) use glibc::unfit;
pub(crate) use links::{copy, describe, directory};
pub(crate) use machine::Machine;
