//! The C ABI: one shared object that serves as `libibverbs.so.1` and `librdmacm.so.1`. Programs
//! linked with those run on this adapter unchanged.
//!
//! Each file of `objects` holds the functions of one kind of object. A function only translates:
//! the structures and masks of C into the calls of [`roce_provider`], their errors into numbers.
//! All functions are `unsafe` for the same reason: they take pointers from programs, and trust them
//! as the replaced libraries do. Pointers to objects are looked up first, except in calls that move
//! data. The contract of each is that of C: pointers lead to objects of their types, and objects
//! are not used after they are destroyed.

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

/// Reads `struct ibv_flow_attr` and the specs behind it, as a program has them in memory; else the
/// number of the error, `EFAULT` where they end too early.
///
/// # Errors
/// That of `ibv_create_flow`.
#[doc(hidden)] // for the fuzz targets
pub fn read_flow(bytes: &[u8]) -> Result<roce_provider::FlowAttr, std::ffi::c_int> {
    let copy = |at: usize, to: &mut [u8]| {
        let from = bytes.get(at..at + to.len()).ok_or(errno::Errno::told(libc::EFAULT))?;
        to.copy_from_slice(from);
        Ok(())
    };
    translate::flow::whole(copy).map_err(|error| error.number())
}
