//! GPU memory in C: probe, pointers, unmappable descriptors.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]

use std::{
    ffi::{c_int, c_uint, c_void},
    mem,
    ptr::null_mut,
};

use super::{
    library::{Library, mask},
    runs_alone,
};

#[path = "../../../tests/fake_cuda/load.rs"]
mod load;

type Pointer = *mut c_void;

const LENGTH: usize = 8192;

/// 0, or the error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Results {
    /// `ibv_reg_dmabuf_mr` without a descriptor, as NCCL and UCX probe.
    probe: c_int,
    /// `ibv_reg_mr` of a GPU address.
    pointer: c_int,
    /// The same on demand.
    on_demand: c_int,
    /// `ibv_reg_dmabuf_mr` of an unmappable descriptor, with the address as iova.
    descriptor: c_int,
    /// The same with another address.
    other_address: c_int,
    /// `ibv_rereg_mr` from process to GPU memory.
    changed: c_int,
}

/// GPU memory and descriptor of `tests/fake_cuda`.
fn gpu_memory() -> (u64, c_int) {
    unsafe {
        let driver = load::driver();
        let find = |name: &std::ffi::CStr| libc::dlsym(driver, name.as_ptr());
        let create: unsafe extern "C" fn(*mut Pointer, c_uint, c_int) -> c_int =
            mem::transmute(find(c"cuCtxCreate_v2"));
        let push: unsafe extern "C" fn(Pointer) -> c_int =
            mem::transmute(find(c"cuCtxPushCurrent_v2"));
        let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int =
            mem::transmute(find(c"cuMemAlloc_v2"));
        let export: unsafe extern "C" fn(*mut c_int, u64, usize, c_int, u64) -> c_int =
            mem::transmute(find(c"cuMemGetHandleForAddressRange"));
        let (mut context, mut address, mut descriptor) = (null_mut(), 0, -1);
        assert_eq!((create(&raw mut context, 0, 0), push(context)), (0, 0));
        assert_eq!(allocate(&raw mut address, LENGTH), 0);
        assert_eq!(export(&raw mut descriptor, address, LENGTH, 1, 0), 0);
        (address, descriptor)
    }
}

fn results() -> Results {
    let library = Library::load();
    let mut memory = Box::new([0_u64; 512]);
    let rights = mask(&["IBV_ACCESS_LOCAL_WRITE", "IBV_ACCESS_REMOTE_WRITE"]);
    let objects = library.open(&raw mut *memory, rights);
    let [_, pd, _, mr] = objects;
    unsafe {
        type RegDmaBuf = unsafe extern "C" fn(Pointer, u64, usize, u64, c_int, c_int) -> Pointer;
        let reg_dmabuf: RegDmaBuf = library.function("ibv_reg_dmabuf_mr");
        let reg: unsafe extern "C" fn(Pointer, Pointer, usize, c_int) -> Pointer =
            library.function("ibv_reg_mr");
        let dereg: unsafe extern "C" fn(Pointer) -> c_int = library.function("ibv_dereg_mr");
        let change: unsafe extern "C" fn(Pointer, c_int, Pointer, Pointer, usize, c_int) -> c_int =
            library.function("ibv_rereg_mr");
        let errno = || std::io::Error::last_os_error().raw_os_error().unwrap();
        let result = |mr: Pointer| {
            if mr.is_null() {
                return errno();
            }
            assert_eq!(dereg(mr), 0);
            0
        };
        let before = result(reg_dmabuf(pd, 0, 0, 0, -1, 0));
        assert_eq!(before, libc::EOPNOTSUPP, "no driver is loaded yet");
        let (address, descriptor) = gpu_memory();
        let pointer = address as Pointer;
        let on_demand = mask(&["IBV_ACCESS_ON_DEMAND"]);
        let translation = mask(&["IBV_REREG_MR_CHANGE_TRANSLATION"]);
        let process = memory.as_mut_ptr().cast();
        let found = Results {
            probe: result(reg_dmabuf(pd, 0, 0, 0, -1, 0)),
            pointer: result(reg(pd, pointer, LENGTH, rights)),
            on_demand: result(reg(pd, pointer, LENGTH, rights | on_demand)),
            descriptor: result(reg_dmabuf(pd, 0, LENGTH, address, descriptor, rights)),
            other_address: result(reg_dmabuf(pd, 0, 4096, 4096, descriptor, rights)),
            changed: match change(mr, translation, null_mut(), pointer, LENGTH, 0) {
                0 => 0,
                _ => errno(),
            },
        };
        assert_eq!(result(reg(pd, process, 4096, rights)), 0, "memory of the process");
        assert_eq!(result(reg(pd, pointer, LENGTH + 1, rights)), libc::EFAULT);
        library.close(objects);
        found
    }
}

#[test]
fn the_probe_says_that_memory_of_a_gpu_works() {
    if runs_alone("gpu::the_probe_says_that_memory_of_a_gpu_works", ("ROCE_GPU", "1")) {
        return;
    }
    let expected = Results {
        probe: libc::EBADF,
        pointer: 0,
        on_demand: 0,
        descriptor: 0,
        other_address: libc::EINVAL,
        changed: 0,
    };
    assert_eq!(results(), expected);
}

#[test]
fn the_probe_says_that_it_is_turned_off() {
    if runs_alone("gpu::the_probe_says_that_it_is_turned_off", ("ROCE_GPU", "0")) {
        return;
    }
    let expected = Results {
        probe: libc::EOPNOTSUPP,
        pointer: libc::EFAULT,
        on_demand: 0, // pages are not checked
        descriptor: libc::EINVAL,
        other_address: libc::EINVAL,
        changed: libc::EFAULT,
    };
    assert_eq!(results(), expected);
}
