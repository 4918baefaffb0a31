//! Symbols of the shared object.
//!
//! A function that is exported by `#[no_mangle]` gets no version: the compiler gives the linker a
//! version script of its own, without versions. So each exported name is a jump to its function,
//! and only `exports.map` lists the names.
//!
//! In front of the jump is a gate, where the call can be made to fail before it has done anything
//! ([`crate::hooks::fault`]): the one place that all calls pass but those that move data.

use roce_provider::faults::CallId;

use crate::hooks::fault::{CANNOT_FAIL, Verdict, decide};

/// The instruction that jumps to a function.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}

/// The instruction that jumps to a function.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b"
    };
}

/// The instruction that jumps to a function.
#[cfg(target_arch = "riscv64")]
macro_rules! jump {
    () => {
        "tail"
    };
}

/// Goes to `function`, unless there are rules for calls, that is `armed`: then by [`ask`], with the
/// number of the call and the function in registers that belong to nobody between a caller and a
/// function.
#[cfg(target_arch = "x86_64")]
macro_rules! gate {
    () => {
        "cmp byte ptr [rip + {armed}], 0
         jne 2f
         jmp {function}
      2: mov r11d, {call}
         lea r10, [rip + {function}]
         jmp {ask}"
    };
}

/// Goes to `function`, unless there are rules for calls, that is `armed`: then by [`ask`], with the
/// number of the call and the function in registers that belong to nobody between a caller and a
/// function.
#[cfg(target_arch = "aarch64")]
macro_rules! gate {
    () => {
        "adrp x16, {armed}
         ldrb w17, [x16, :lo12:{armed}]
         cbnz w17, 2f
         b {function}
      2: mov w17, #{call}
         adrp x16, {function}
         add x16, x16, :lo12:{function}
         b {ask}"
    };
}

/// Goes to `function`, unless there are rules for calls, that is `armed`: then by [`ask`], with the
/// number of the call and the function in registers that belong to nobody between a caller and a
/// function.
#[cfg(target_arch = "riscv64")]
macro_rules! gate {
    () => {
        "lbu t2, {armed}
         bnez t2, 2f
         tail {function}
      2: li t3, {call}
         lla t2, {function}
         tail {ask}"
    };
}

/// Asks what becomes of a call, with its arguments put aside: it goes on, or returns at once.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn ask() {
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax", // number of arguments in vector registers, of which there are none
        "push r10",
        "mov edi, r11d",
        "call {verdict}",
        "test rdx, rdx",
        "jnz 2f",
        "pop r10",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "jmp r10",
        "2: mov rsp, rbp",
        "pop rbp",
        "ret",
        verdict = sym verdict,
    );
}

/// Asks what becomes of a call, with its arguments put aside: it goes on, or returns at once.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn ask() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-96]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "stp x8, x16, [sp, #80]",
        "mov w0, w17",
        "bl {verdict}",
        "cbnz x1, 2f",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldp x8, x16, [sp, #80]",
        "ldp x29, x30, [sp], #96",
        "br x16",
        "2: ldp x29, x30, [sp], #96",
        "ret",
        verdict = sym verdict,
    );
}

/// Asks what becomes of a call, with its arguments put aside: it goes on, or returns at once.
#[cfg(target_arch = "riscv64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn ask() {
    core::arch::naked_asm!(
        "addi sp, sp, -80",
        "sd ra, 72(sp)",
        "sd a0, 0(sp)",
        "sd a1, 8(sp)",
        "sd a2, 16(sp)",
        "sd a3, 24(sp)",
        "sd a4, 32(sp)",
        "sd a5, 40(sp)",
        "sd a6, 48(sp)",
        "sd a7, 56(sp)",
        "sd t2, 64(sp)",
        "mv a0, t3",
        "call {verdict}",
        "ld ra, 72(sp)",
        "bnez a1, 2f",
        "ld a0, 0(sp)",
        "ld a1, 8(sp)",
        "ld a2, 16(sp)",
        "ld a3, 24(sp)",
        "ld a4, 32(sp)",
        "ld a5, 40(sp)",
        "ld a6, 48(sp)",
        "ld a7, 56(sp)",
        "ld t2, 64(sp)",
        "addi sp, sp, 80",
        "jr t2",
        "2: addi sp, sp, 80",
        "ret",
        verdict = sym verdict,
    );
}

extern "C" fn verdict(call: u32) -> Verdict {
    CallId::numbered(call as usize).map_or(Verdict::GOES_ON, decide)
}

/// Number of a call for [`ask`]; one that there is not for a function that cannot fail.
pub(crate) const fn number(name: &str) -> u16 {
    match CallId::of(name) {
        Some(call) => call.number(),
        None => CANNOT_FAIL,
    }
}

/// A pointer of the type of `function` to what goes there by a gate.
pub(crate) fn instead<F: Copy>(_function: F, gate: unsafe extern "C" fn()) -> F {
    const { assert!(size_of::<F>() == size_of::<unsafe extern "C" fn()>()) };
    // SAFETY: Both are pointers to functions; the gate keeps the arguments, and is called as the
    // function is.
    unsafe { std::mem::transmute_copy(&gate) }
}

/// A function that programs reach through a pointer, with the name of the call: as if exported.
macro_rules! gated {
    ($call:literal, $function:path) => {{
        const CALL: u16 = {
            let number = $crate::export::number($call);
            assert!(number != $crate::hooks::fault::CANNOT_FAIL, "no such call");
            number
        };
        #[unsafe(naked)]
        unsafe extern "C" fn gate() {
            core::arch::naked_asm!(
                $crate::export::gate!(),
                function = sym $function,
                armed = sym $crate::hooks::fault::ARMED,
                ask = sym $crate::export::ask,
                call = const CALL,
            );
        }
        Some($crate::export::instead($function as _, gate))
    }};
}

/// Exports functions by their names.
macro_rules! export {
    ($($name:ident),* $(,)?) => {
        $(
            core::arch::global_asm!(
                ".pushsection .text.roce_exports,\"ax\",%progbits",
                concat!(".globl ", stringify!($name)),
                concat!(".type ", stringify!($name), ",%function"),
                concat!(stringify!($name), ":"),
                $crate::export::gate!(),
                concat!(".size ", stringify!($name), ", .-", stringify!($name)),
                ".popsection",
                function = sym $name,
                armed = sym $crate::hooks::fault::ARMED,
                ask = sym $crate::export::ask,
                call = const $crate::export::number(stringify!($name)),
            );
        )*
    };
}

/// Exports functions that drivers use. Their names have a version for each release of rdma-core
/// that has changed what it promises to drivers; the release is given since which a name is there.
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

/// A symbol of one release, at this place: a name of its own, which stays inside, and the exported
/// one with its version.
macro_rules! symbol {
    ($name:ident $kind:literal $at:literal $release:literal) => {
        concat!(
            ".globl roce_",
            $release,
            "_",
            stringify!($name),
            "\n.type roce_",
            $release,
            "_",
            stringify!($name),
            ",%",
            $kind,
            "\nroce_",
            $release,
            "_",
            stringify!($name),
            ":\n.symver roce_",
            $release,
            "_",
            stringify!($name),
            ",",
            stringify!($name),
            $at,
            "IBVERBS_PRIVATE_",
            $release,
        )
    };
}

pub(crate) use {export, export_private, gate, gated, in_releases, jump, symbol};
