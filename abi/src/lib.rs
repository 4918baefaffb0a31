//! The C ABI in one shared object, both `libibverbs.so.1` and `librdmacm.so.1`.
//!
//! Functions only translate to [`roce_provider`]. All are `unsafe`: they trust the program's
//! pointers, as the replaced libraries do. Only data-path calls skip the lookup of objects. The
//! contract is C's: pointers have their types, and objects are not used after destruction.

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
mod prelude;
mod rsocket;
mod rule;
mod second;
mod sync;
#[cfg(test)]
mod tests;
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
    translate::flow::from_c(copy).map_err(|error| error.number())
}
