//! Symbols of the shared object.
//!
//! A function that is exported by `#[no_mangle]` gets no version: the compiler gives the linker a
//! version script of its own, without versions. So each exported name is a jump to its function,
//! and only `exports.map` lists the names.

/// Exports functions by their names.
#[cfg(target_arch = "x86_64")]
macro_rules! export {
    ($($name:ident),* $(,)?) => { $crate::export::exports! { "jmp", $($name,)* } };
}

/// Exports functions by their names.
#[cfg(target_arch = "aarch64")]
macro_rules! export {
    ($($name:ident),* $(,)?) => { $crate::export::exports! { "b", $($name,)* } };
}

macro_rules! exports {
    ($jump:literal, $($name:ident,)*) => {
        $(
            core::arch::global_asm!(
                ".pushsection .text.roce_exports,\"ax\",%progbits",
                concat!(".globl ", stringify!($name)),
                concat!(".type ", stringify!($name), ",%function"),
                concat!(stringify!($name), ":"),
                concat!($jump, " {function}"),
                concat!(".size ", stringify!($name), ", .-", stringify!($name)),
                ".popsection",
                function = sym $name,
            );
        )*
    };
}

pub(crate) use {export, exports};
