//! Regions of dma-bufs and `memfd_create`.

use std::{io, os::fd::BorrowedFd, sync::Arc};

use roce_provider::{
    GpuMemory, gpus_work, map_shared,
    transport::mem::{Access, Memory},
};

use super::{
    mr::{Mr, PAGE, Region},
    pd::Pd,
};
use crate::{
    hooks::check::{
        requests::{self, RegionMemory},
        watch,
    },
    prelude::*,
    translate::rights,
};

/// As in the kernel, the region's `addr` is the offset.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    descriptor: c_int,
    access: c_uint,
) -> Result<*mut ibv_mr> {
    const RIGHTS: Access =
        Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_CHANGE);
    let pd = Pd::get(pd)?;
    refuse_if(offset % PAGE != iova % PAGE, Rule::DmaBuf)?;
    let rights = rights::from_c(access)?;
    let ways = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
    refuse_if(access & ways != 0 || !RIGHTS.contains(rights), Rule::AccessFlags)?;
    if descriptor < 0 {
        // programs probe for GPU support with -1
        let rule = if gpus_work() { Rule::NotADescriptor } else { Rule::NoGpu };
        return Err(Errno::of(rule));
    }
    // stays open during the call; a closed descriptor gives an error
    let descriptor = BorrowedFd::borrow_raw(descriptor);
    let (memory, in_process) = match map_shared(descriptor, offset, length, rights) {
        Ok(memory) => {
            let there =
                RegionMemory { iova, address: memory.origin() as usize, length, is_pinned: false };
            (watch::watched(memory), Some(there))
        }
        // unmappable memory: programs pass the GPU's address as iova
        Err(error) => (on_gpu(iova, length, error)?, None),
    };
    let region = pd.domain.register(memory, iova, rights)?;
    let lkey = region.lkey().0;
    let mr = Mr::create_raw(pd, Region::DmaBuf(region), offset as *mut c_void, length);
    if let Some(memory) = in_process {
        requests::add_region(pd.ctx.device(), lkey, memory);
    }
    Ok(mr)
}

/// GPU memory at `address`, or the `error` of mapping the buffer.
fn on_gpu(address: u64, length: usize, error: io::Error) -> Result<Arc<dyn Memory>> {
    let number = error.raw_os_error();
    if number != Some(libc::EBADF)
        && length > 0
        && let Some(memory) = GpuMemory::find(address, length)?
    {
        return Ok(Arc::new(memory));
    }
    Err(if number == Some(libc::EINVAL) { Errno::of(Rule::DmaBuf) } else { error.into() })
}

calls!(
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        descriptor: c_int,
        access: c_int,
    ) -> *mut ibv_mr {
        register(pd, offset, length, iova, descriptor, access as c_uint)
    }
);

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::{
        fs::File,
        os::{fd::AsRawFd, unix::fs::FileExt},
        ptr::null_mut,
    };

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::{
        layout::ibv_mr_init_attr,
        objects::mr::{ibv_dereg_mr, ibv_rereg_mr},
        tests::{Allocated, Opened, errno},
    };

    /// `IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ`.
    const ALL: c_int = 7;

    fn buffer(length: u64) -> File {
        let file = File::from(memfd_create("buffer", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(length).unwrap();
        file
    }

    #[test]
    fn a_region_has_the_offset_for_an_address_and_outlives_the_descriptor() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        let file = buffer(10_000);
        file.write_all_at(b"words", 4100).unwrap();
        unsafe {
            let number = file.as_raw_fd();
            let mr = ibv_reg_dmabuf_mr(pd.0, 4100, 5000, (1 << 40) + 4, number, ALL);
            assert!(!mr.is_null(), "{}", errno());
            assert_eq!(((*mr).addr as u64, (*mr).length), (4100, 5000));
            assert_eq!((*mr).lkey, (*mr).rkey);
            drop(file);
            let region = Mr::get(mr).unwrap().region().unwrap();
            assert_eq!(region.address(), (1 << 40) + 4);
            let mut words = [0; 5];
            region.read_at(0, &mut words).unwrap();
            assert_eq!(&words, b"words");
            let flags = IBV_REREG_MR_CHANGE_ACCESS;
            assert_ne!(ibv_rereg_mr(mr, flags, null_mut(), null_mut(), 0, 1), 0);
            assert_eq!(ibv_dereg_mr(mr), 0);
        }
    }

    #[test]
    fn offsets_lengths_rights_and_descriptors_are_refused_as_by_the_kernel() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        let file = buffer(8192);
        let number = file.as_raw_fd();
        let reg = |offset, length, iova, descriptor, access| unsafe {
            let mr = ibv_reg_dmabuf_mr(pd.0, offset, length, iova, descriptor, access);
            if mr.is_null() {
                return errno();
            }
            assert_eq!(ibv_dereg_mr(mr), 0);
            0
        };
        let program = File::open("/proc/self/exe").unwrap().into();
        let program: std::os::fd::OwnedFd = program;
        for (offset, length, iova, descriptor, access, expected) in [
            (0, 8192, 0, number, ALL, 0),
            (0, 8192, 4096, number, ALL | 1 << 20, 0), // IBV_ACCESS_RELAXED_ORDERING
            (4096, 4096, 0, number, 4, 0),             // for reading
            (1, 1, 0, number, ALL, libc::EINVAL),
            (1, 1, 4097, number, ALL, 0),
            (0, 0, 0, number, ALL, libc::EINVAL),
            (0, 8193, 0, number, ALL, libc::EINVAL),
            (8192, 1, 0, number, ALL, libc::EINVAL),
            (u64::MAX - 4095, 4096, 0, number, ALL, libc::EINVAL),
            (0, 8192, u64::MAX - 4095, number, ALL, libc::EINVAL),
            (0, 1, 0, -1, ALL, libc::EOPNOTSUPP), // no driver of a GPU
            (0, 1, 0, 1 << 20, ALL, libc::EBADF),
            (0, 1, 0, program.as_raw_fd(), ALL, libc::EINVAL),
            (0, 1, 0, number, 2, libc::EINVAL), // remote write without local
            (0, 1, 0, number, ALL | 1 << 4, libc::EINVAL), // IBV_ACCESS_MW_BIND
            (0, 1, 0, number, ALL | IBV_ACCESS_ZERO_BASED as c_int, libc::EINVAL),
            (0, 1, 0, number, ALL | IBV_ACCESS_ON_DEMAND as c_int, libc::EINVAL),
            (0, 1, 0, number, 1 << 30, libc::EINVAL),
        ] {
            let got = reg(offset, length, iova, descriptor, access);
            assert_eq!(got, expected, "{offset} {length} {iova} {descriptor} {access:#x}");
        }
    }

    #[test]
    fn the_call_for_all_kinds_of_memory_takes_them_too() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        let file = buffer(8192);
        let mut attr = ibv_mr_init_attr {
            length: 4096,
            access: ALL,
            comp_mask: IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA,
            fd: file.as_raw_fd(),
            fd_offset: 4096,
            ..ibv_mr_init_attr::zeroed()
        };
        unsafe {
            let mr = crate::objects::buf::ibv_reg_mr_ex(pd.0, &raw mut attr);
            assert!(!mr.is_null(), "{}", errno());
            assert_eq!(((*mr).addr as u64, (*mr).length, ibv_dereg_mr(mr)), (4096, 4096, 0));
        }
    }
}
