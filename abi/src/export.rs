//! Exported symbols.
//!
//! `#[no_mangle]` gives no version: rustc's version script has none. Each exported name is a jump.
//! Only `exports.map` lists names.

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b"
    };
}

#[cfg(target_arch = "riscv64")]
macro_rules! jump {
    () => {
        "tail"
    };
}

macro_rules! export {
    ($($name:ident),* $(,)?) => {
        $(
            core::arch::global_asm!(
                ".pushsection .text.roce_exports,\"ax\",%progbits",
                concat!(".globl ", stringify!($name)),
                concat!(".type ", stringify!($name), ",%function"),
                concat!(stringify!($name), ":"),
                concat!($crate::export::jump!(), " {function}"),
                concat!(".size ", stringify!($name), ", .-", stringify!($name)),
                ".popsection",
                function = sym $name,
            );
        )*
    };
}

/// Exports functions in each version of the driver ABI (rdma-core releases) from the given one on.
macro_rules! export_private {
    (34: $($name:ident),* $(,)?) => { $($crate::export::in_releases! { $name 65 64 59 57 34 })* };
    (59: $($name:ident),* $(,)?) => { $($crate::export::in_releases! { $name 65 64 59 })* };
    (64: $($name:ident),* $(,)?) => { $($crate::export::in_releases! { $name 65 64 })* };
    (65: $($name:ident),* $(,)?) => { $crate::export::export!($($name),*); };
}

macro_rules! in_releases {
    ($name:ident $newest:literal $($older:literal)*) => {
        core::arch::global_asm!(
            ".pushsection .text.roce_exports,\"ax\",%progbits",
            $crate::export::symbol!($name "function" "@@" $newest),
            $($crate::export::symbol!($name "function" "@" $older),)*
            concat!($crate::export::jump!(), " {function}"),
            ".popsection",
            function = sym $name,
        );
    };
}

/// Defines an internal name, exported with a release's version.
macro_rules! symbol {
    ($name:ident $kind:literal $at:literal $release:literal) => {
        $crate::export::symbol!(
            concat!("roce_", $release, "_", stringify!($name)),
            $kind,
            concat!(stringify!($name), $at, "IBVERBS_PRIVATE_", $release)
        )
    };
    ($internal:expr, $kind:literal, $exported:expr) => {
        concat!(
            ".globl ",
            $internal,
            "\n.type ",
            $internal,
            ",%",
            $kind,
            "\n",
            $internal,
            ":\n.symver ",
            $internal,
            ",",
            $exported,
        )
    };
}

pub(crate) use {export, export_private, in_releases, jump, symbol};
