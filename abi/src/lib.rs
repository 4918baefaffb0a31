//! The C ABI: one shared object, both `libibverbs.so.1` and `librdmacm.so.1`. Programs run
//! unchanged.
//!
//! A file of `objects` has the functions of one kind of object. They only translate, to
//! [`roce_provider`]. All are `unsafe`: they trust the program's pointers, as the replaced
//! libraries do. They look objects up first, except to move data. The contract is C's: a pointer
//! has its type, and no object is used after its destruction.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "one contract for all: what C demands of callers; see above"
)]

mod adapter;
mod at_end;
mod call;
mod cm;
mod driver;
mod errno;
mod exit;
mod export;
mod hooks;
mod kernel;
mod layout;
mod load;
mod objects;
#[cfg(test)]
mod older;
mod rsocket;
mod rule;
mod second;
mod sync;
#[cfg(test)]
mod testing;
mod text;
mod translate;
mod wait;

/// Reads `struct ibv_flow_attr` and its specs; `EFAULT` if they end early.
///
/// # Errors
/// As `ibv_create_flow`.
#[doc(hidden)] // for the fuzz targets
pub fn read_flow(bytes: &[u8]) -> Result<roce_provider::FlowAttr, std::ffi::c_int> {
    let copy = |at: usize, to: &mut [u8]| {
        let from = bytes.get(at..at + to.len()).ok_or(errno::Errno::plain(libc::EFAULT))?;
        to.copy_from_slice(from);
        Ok(())
    };
    translate::flow::whole(copy).map_err(|error| error.number())
}
