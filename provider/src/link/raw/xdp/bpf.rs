//! bpf(2): the socket map, the program, and its attachment.

#![allow(unsafe_code, reason = "bpf(2) has no safe interface")]

use std::{
    ffi::c_int,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::program::Instruction;

const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_FRAGS: u32 = 1 << 5;
/// `XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_SKB_MODE`.
const IN_DRIVER: u32 = 1 << 2;
const IN_STACK: u32 = 1 << 1;

const NAME: [u8; 16] = *b"roce\0\0\0\0\0\0\0\0\0\0\0\0";
const LOG: usize = 1 << 16;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

pub(super) fn map(entries: u32) -> io::Result<OwnedFd> {
    let request = MapCreate {
        kind: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        entries,
        name: NAME,
        ..MapCreate::default()
    };
    // SAFETY: The structure has no addresses.
    unsafe { call(MAP_CREATE, &request) }.map(opened)
}

pub(super) fn insert(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let request = MapUpdate {
        map: number(map),
        padding: 0,
        key: address(&raw const queue),
        value: address(&raw const value),
        flags: 0,
    };
    // SAFETY: Key and value outlive the call and have the map's four bytes.
    unsafe { call(MAP_UPDATE_ELEM, &request) }.map(drop)
}

/// A verifier's error ends with the last line of its log.
pub(super) fn load(instructions: &[Instruction], multi_buffer: bool) -> io::Result<OwnedFd> {
    match try_load(instructions, multi_buffer, &mut []) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => {
            let mut log = vec![0; LOG];
            try_load(instructions, multi_buffer, &mut log).map_err(|error| {
                let text = String::from_utf8_lossy(&log);
                let mut lines =
                    text.split(['\n', '\0']).map(str::trim).filter(|line| !line.is_empty());
                // statistics follow the reason
                match lines.rfind(|line| !line.starts_with("processed ")) {
                    Some(line) => io::Error::new(error.kind(), format!("{error}: {line}")),
                    None => error,
                }
            })
        }
        result => result,
    }
}

fn try_load(
    instructions: &[Instruction],
    multi_buffer: bool,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let request = ProgramLoad {
        kind: PROG_TYPE_XDP,
        count: instructions.len() as u32,
        instructions: address(instructions.as_ptr()),
        // no helper needs another license
        license: address(c"Dual MIT/GPL".as_ptr()),
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { address(log.as_mut_ptr()) },
        kernel: 0,
        flags: if multi_buffer { HAS_FRAGS } else { 0 },
        name: NAME,
        interface: 0,
        attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: Instructions, license and log outlive the call, with their true lengths.
    unsafe { call(PROG_LOAD, &request) }.map(opened)
}

/// Attached while the returned descriptor is open.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    in_driver: bool,
) -> io::Result<OwnedFd> {
    let flags = if in_driver { IN_DRIVER } else { IN_STACK };
    let request =
        LinkCreate { program: number(program), interface, attach_type: ATTACH_TYPE_XDP, flags };
    // SAFETY: The structure has no addresses.
    unsafe { call(LINK_CREATE, &request) }.map(opened)
}

fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn opened(descriptor: c_int) -> OwnedFd {
    // SAFETY: The kernel has just returned the descriptor to this process.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// # Safety
/// The structure's addresses and lengths are of memory that the command may access.
unsafe fn call<T>(command: c_int, request: &T) -> io::Result<c_int> {
    // SAFETY: The kernel reads the structure's bytes; the caller vouches for its addresses.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(request), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}
