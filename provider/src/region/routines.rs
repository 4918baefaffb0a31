//! Copies and 8-byte operations on memory that may be missing, in survivable assembly.
//!
//! The routines lie between two labels, use no stack and return 0. [`recover`] moves a program
//! counter between the labels to a third, which returns 1.
//!
//! Copies go upwards, aligned on the foreign side: 8-byte words move whole, as in our regions.
//! x86-64 moves 16 bytes, whole with AVX, else by halves. Data one page ahead is prefetched:
//! hardware streams end at the page, where the next packet continues.

#![allow(unsafe_code, reason = "memory that can fault is beyond what the language knows")]

use std::ffi::c_void;

macro_rules! global {
    ($name:literal) => {
        concat!(".hidden ", $name, "\n.globl ", $name, "\n", $name, ":")
    };
}

/// Lines of literals, behind which the routine returns 0.
#[cfg(target_arch = "x86_64")]
macro_rules! routine {
    ($name:literal, $([$($part:literal)+])+) => {
        concat!(
            ".hidden ", $name, "\n.globl ", $name, "\n.type ", $name, ", @function\n",
            ".p2align 4\n", $name, ":\n",
            $($($part,)+ "\n",)+
            "xor eax, eax\nret\n",
            ".size ", $name, ", . - ", $name, "\n",
        )
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! copy {
    // Aligned register, 16-byte moves of either side, and the next packet's prefetch.
    ($name:literal, $foreign:literal, $load:literal, $store:literal, $prefetch:literal) => {
        routine!($name,
            // up to a multiple of 16, by aligned pieces
            ["test " $foreign ", 15\njz 25f"]
            ["test " $foreign ", 1\njz 21f\ncmp rdx, 1\njb 29f"]
            ["mov al, [rsi]\nmov [rdi], al\nadd rsi, 1\nadd rdi, 1\nsub rdx, 1"]
            ["21: test " $foreign ", 2\njz 22f\ncmp rdx, 2\njb 29f"]
            ["mov ax, [rsi]\nmov [rdi], ax\nadd rsi, 2\nadd rdi, 2\nsub rdx, 2"]
            ["22: test " $foreign ", 4\njz 23f\ncmp rdx, 4\njb 29f"]
            ["mov eax, [rsi]\nmov [rdi], eax\nadd rsi, 4\nadd rdi, 4\nsub rdx, 4"]
            ["23: test " $foreign ", 8\njz 25f\ncmp rdx, 8\njb 29f"]
            ["mov rax, [rsi]\nmov [rdi], rax\nadd rsi, 8\nadd rdi, 8\nsub rdx, 8"]
            // 64 bytes at a time
            ["25: sub rdx, 64\njb 27f\n.p2align 4"]
            ["26: " $prefetch]
            [$load " xmm0, [rsi]\n" $load " xmm1, [rsi + 16]"]
            [$load " xmm2, [rsi + 32]\n" $load " xmm3, [rsi + 48]"]
            [$store " [rdi], xmm0\n" $store " [rdi + 16], xmm1"]
            [$store " [rdi + 32], xmm2\n" $store " [rdi + 48], xmm3"]
            ["add rsi, 64\nadd rdi, 64\nsub rdx, 64\njae 26b"]
            // the rest, by the bits of its length
            ["27: test dl, 32\njz 28f"]
            [$load " xmm0, [rsi]\n" $load " xmm1, [rsi + 16]"]
            [$store " [rdi], xmm0\n" $store " [rdi + 16], xmm1"]
            ["add rsi, 32\nadd rdi, 32"]
            ["28: test dl, 16\njz 29f"]
            [$load " xmm0, [rsi]\n" $store " [rdi], xmm0\nadd rsi, 16\nadd rdi, 16"]
            ["29: test dl, 8\njz 31f\nmov rax, [rsi]\nmov [rdi], rax\nadd rsi, 8\nadd rdi, 8"]
            ["31: test dl, 4\njz 32f\nmov eax, [rsi]\nmov [rdi], eax\nadd rsi, 4\nadd rdi, 4"]
            ["32: test dl, 2\njz 33f\nmov ax, [rsi]\nmov [rdi], ax\nadd rsi, 2\nadd rdi, 2"]
            ["33: test dl, 1\njz 34f\nmov al, [rsi]\nmov [rdi], al"]
            ["34:"]
        )
    };
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.roce_foreign, \"ax\", @progbits",
    global!("roce_foreign_begin"),
    // Arguments are in the order of the declarations below, by the C ABI.
    copy!("roce_foreign_copy_in", "sil", "movaps", "movups", "prefetcht0 [rsi + 4096]"),
    copy!("roce_foreign_copy_out", "dil", "movups", "movaps", "prefetchw [rdi + 4096]"),
    routine!("roce_foreign_load", ["mov rax, [rdi]\nmov [rsi], rax"]),
    routine!("roce_foreign_store", ["mov [rdi], rsi"]),
    routine!(
        "roce_foreign_compare_swap",
        ["mov rax, rsi\nlock cmpxchg [rdi], rdx\nmov [rcx], rax"]
    ),
    routine!("roce_foreign_fetch_add", ["lock xadd [rdi], rsi\nmov [rdx], rsi"]),
    global!("roce_foreign_end"),
    global!("roce_foreign_fault"),
    "mov eax, 1",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
macro_rules! routine {
    ($name:literal, $([$($part:literal)+])+) => {
        concat!(
            ".hidden ", $name, "\n.globl ", $name, "\n.type ", $name, ", %function\n",
            ".p2align 4\n", $name, ":\n",
            $($($part,)+ "\n",)+
            "mov x0, #0\nret\n",
            ".size ", $name, ", . - ", $name, "\n",
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! copy {
    ($name:literal, $foreign:literal, $prefetch:literal) => {
        routine!($name,
            // up to a multiple of 8, by aligned pieces
            ["tbz " $foreign ", #0, 21f\ncmp x2, #1\nb.lo 29f"]
            ["ldrb w3, [x1], #1\nstrb w3, [x0], #1\nsub x2, x2, #1"]
            ["21: tbz " $foreign ", #1, 22f\ncmp x2, #2\nb.lo 29f"]
            ["ldrh w3, [x1], #2\nstrh w3, [x0], #2\nsub x2, x2, #2"]
            ["22: tbz " $foreign ", #2, 25f\ncmp x2, #4\nb.lo 29f"]
            ["ldr w3, [x1], #4\nstr w3, [x0], #4\nsub x2, x2, #4"]
            // 64 bytes at a time
            ["25: subs x2, x2, #64\nb.lo 27f"]
            ["26: " $prefetch]
            ["ldp x3, x4, [x1]\nldp x5, x6, [x1, #16]"]
            ["ldp x7, x8, [x1, #32]\nldp x9, x10, [x1, #48]"]
            ["stp x3, x4, [x0]\nstp x5, x6, [x0, #16]"]
            ["stp x7, x8, [x0, #32]\nstp x9, x10, [x0, #48]"]
            ["add x1, x1, #64\nadd x0, x0, #64\nsubs x2, x2, #64\nb.hs 26b"]
            // the rest, by the bits of its length
            ["27: tbz x2, #5, 28f"]
            ["ldp x3, x4, [x1]\nldp x5, x6, [x1, #16]\nstp x3, x4, [x0]\nstp x5, x6, [x0, #16]"]
            ["add x1, x1, #32\nadd x0, x0, #32"]
            ["28: tbz x2, #4, 29f\nldp x3, x4, [x1], #16\nstp x3, x4, [x0], #16"]
            ["29: tbz x2, #3, 31f\nldr x3, [x1], #8\nstr x3, [x0], #8"]
            ["31: tbz x2, #2, 32f\nldr w3, [x1], #4\nstr w3, [x0], #4"]
            ["32: tbz x2, #1, 33f\nldrh w3, [x1], #2\nstrh w3, [x0], #2"]
            ["33: tbz x2, #0, 34f\nldrb w3, [x1]\nstrb w3, [x0]"]
            ["34:"]
        )
    };
}

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.roce_foreign, \"ax\", %progbits",
    global!("roce_foreign_begin"),
    // Arguments are in the order of the declarations below, by the C ABI.
    copy!("roce_foreign_copy_in", "x1", "prfm pldl1keep, [x1, #4096]"),
    copy!("roce_foreign_copy_out", "x0", "prfm pstl1keep, [x0, #4096]"),
    routine!("roce_foreign_load", ["ldar x2, [x0]\nstr x2, [x1]"]),
    routine!("roce_foreign_store", ["stlr x1, [x0]"]),
    routine!(
        "roce_foreign_compare_swap",
        ["41: ldaxr x4, [x0]\ncmp x4, x1\nb.ne 42f\n"
         "stlxr w5, x2, [x0]\ncbnz w5, 41b\n42: clrex\nstr x4, [x3]"]
    ),
    routine!(
        "roce_foreign_fetch_add",
        ["41: ldaxr x4, [x0]\nadd x5, x4, x1\nstlxr w6, x5, [x0]\ncbnz w6, 41b\nstr x4, [x2]"]
    ),
    global!("roce_foreign_end"),
    global!("roce_foreign_fault"),
    "mov x0, #1",
    "ret",
    ".popsection",
);

pub(super) const EXIST: bool = true;

// Return 0, or 1 after a fault, possibly with partial work. The handler of `faults` must be
// installed.
unsafe extern "C" {
    #[link_name = "roce_foreign_copy_in"]
    pub(super) fn copy_in(to: *mut u8, from: usize, length: usize) -> usize;
    #[link_name = "roce_foreign_copy_out"]
    pub(super) fn copy_out(to: usize, from: *const u8, length: usize) -> usize;
    #[link_name = "roce_foreign_load"]
    pub(super) fn load(word: usize, found: *mut u64) -> usize;
    #[link_name = "roce_foreign_store"]
    pub(super) fn store(word: usize, value: u64) -> usize;
    #[link_name = "roce_foreign_compare_swap"]
    pub(super) fn compare_swap(word: usize, compare: u64, swap: u64, found: *mut u64) -> usize;
    #[link_name = "roce_foreign_fetch_add"]
    pub(super) fn fetch_add(word: usize, add: u64, found: *mut u64) -> usize;

    #[link_name = "roce_foreign_begin"]
    static BEGIN: u8;
    #[link_name = "roce_foreign_end"]
    static END: u8;
    #[link_name = "roce_foreign_fault"]
    static FAULT: u8;
}

/// Makes a faulting routine return 1; true if the fault was in one.
///
/// # Safety
/// `context` is the third argument of this thread's signal handler.
pub(super) unsafe fn recover(context: *mut c_void) -> bool {
    // SAFETY: the kernel's `ucontext_t`, which handlers may change
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let (begin, end, fault) =
        (&raw const BEGIN as usize, &raw const END as usize, &raw const FAULT as usize);
    #[cfg(target_arch = "x86_64")]
    let counter = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let counter = &mut context.uc_mcontext.pc;
    let inside = (begin..end).contains(&(*counter as usize));
    if inside {
        *counter = fault as _;
    }
    inside
}
