//! The targets' bodies on their corpora and on random inputs.

mod common;
mod replay;
mod share;
mod shm;
