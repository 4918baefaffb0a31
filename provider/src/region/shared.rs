#![allow(unsafe_code, reason = "what is mapped is used through its address alone")]

use std::{io, os::fd::AsFd};

use memmap2::MmapOptions;
use roce_transport::mem::Access;
use rustix::{
    fs::{FsWord, SeekFrom},
    io::Errno,
};

use super::{ForeignMemory, Unreachable};

/// `DMA_BUF_MAGIC`.
const DMA_BUF: FsWord = 0x444d_4142;

/// Maps `length` bytes at `offset` of a dma-buf (`/dev/udmabuf`, GPUs) or a `memfd_create` file,
/// writable if `access` has a write right. The descriptor may be closed.
///
/// If the buffer shrinks, accesses fail with [`MemoryFault`]. Writes of other processes and devices
/// are visible at once.
///
/// [`MemoryFault`]: roce_transport::mem::MemoryFault
///
/// # Errors
/// `EINVAL` for another kind of descriptor, zero bytes or too many; `EBADF` if closed; errors of
/// `mmap`, such as `EACCES`; `EFAULT` for unavailable pages.
pub fn map_shared(
    descriptor: impl AsFd,
    offset: u64,
    length: usize,
    access: Access,
) -> io::Result<ForeignMemory> {
    let descriptor = descriptor.as_fd();
    let end = offset.checked_add(length as u64).ok_or(Errno::INVAL)?;
    if length == 0 || end > size(descriptor)? {
        return Err(Errno::INVAL.into());
    }
    let mut options = MmapOptions::new();
    options.offset(offset).len(length);
    let map = if access.intersects(Access::LOCAL_WRITE | Access::REMOTE_CHANGE) {
        options.map_raw(&descriptor)?
    } else {
        options.map_raw_read_only(&descriptor)?
    };
    // SAFETY: the memory owns the mapping, without references into it. Nothing in this process
    // relies on its bytes for soundness.
    let memory = unsafe { ForeignMemory::new(map.as_mut_ptr(), length, access) };
    let memory = memory.map_err(|Unreachable { .. }| Errno::FAULT)?;
    Ok(memory.keeping(map))
}

fn size(descriptor: impl AsFd) -> Result<u64, Errno> {
    if rustix::fs::fstatfs(&descriptor)?.f_type == DMA_BUF {
        // seeking reports the size, without a position
        return rustix::fs::seek(&descriptor, SeekFrom::End(0));
    }
    // `EINVAL` if it is no memory
    rustix::fs::fcntl_get_seals(&descriptor)?;
    u64::try_from(rustix::fs::fstat(&descriptor)?.st_size).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, os::unix::fs::FileExt};

    use roce_transport::mem::{Memory, MemoryFault};
    use rustix::fs::MemfdFlags;

    use super::*;

    const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

    fn buffer(length: u64) -> File {
        let file = File::from(rustix::fs::memfd_create("buffer", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(length).unwrap();
        file
    }

    fn refused(descriptor: impl AsFd, offset: u64, length: usize) -> Option<i32> {
        map_shared(descriptor, offset, length, ALL).unwrap_err().raw_os_error()
    }

    #[test]
    fn bytes_are_those_of_the_buffer_also_when_the_descriptor_is_closed() {
        let mut file = buffer(10_000);
        file.write_all(b"abc").unwrap();
        let other = file.try_clone().unwrap();
        let memory = map_shared(&file, 4097, 5000, ALL).unwrap();
        let start = map_shared(&file, 0, 3, Access::REMOTE_READ).unwrap();
        drop(file);
        memory.write_at(7, b"words").unwrap();
        let mut words = [0; 5];
        other.read_exact_at(&mut words, 4097 + 7).unwrap();
        assert_eq!(&words, b"words");
        other.write_all_at(b"WORDS", 4097 + 4990).unwrap();
        memory.read_at(4990, &mut words).unwrap();
        assert_eq!((&words, memory.len()), (b"WORDS", 5000));
        assert_eq!(memory.read_at(4996, &mut words), Err(MemoryFault));
        let mut letters = [0; 3];
        start.read_at(0, &mut letters).unwrap();
        assert_eq!(&letters, b"abc");
        assert_eq!(start.write_at(0, b"x"), Err(MemoryFault), "mapped to be read");
    }

    #[test]
    fn what_is_cut_off_is_missing_and_no_more() {
        let page = rustix::param::page_size() as u64;
        let file = buffer(3 * page);
        let memory = map_shared(&file, 0, 3 * page as usize, ALL).unwrap();
        file.set_len(page).unwrap();
        memory.write_at(page - 96, &[1; 96]).unwrap();
        assert_eq!(memory.write_at(page, &[1]), Err(MemoryFault));
        file.set_len(2 * page).unwrap();
        memory.write_at(page, &[1]).unwrap();
    }

    #[test]
    fn what_is_no_buffer_or_not_inside_is_refused() {
        let file = buffer(4096);
        for (offset, length) in [(0, 0), (4096, 0), (0, 4097), (4096, 1), (1, 4096), (u64::MAX, 1)]
        {
            assert_eq!(refused(&file, offset, length), Some(libc::EINVAL), "{offset} {length}");
        }
        let program = File::open("/proc/self/exe").unwrap();
        let (pipe, _) = io::pipe().unwrap();
        assert_eq!(refused(program, 0, 1), Some(libc::EINVAL));
        assert_eq!(refused(pipe, 0, 1), Some(libc::EINVAL));

        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let read_only = File::open(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(refused(&read_only, 0, 1), Some(libc::EACCES));
        assert!(map_shared(&read_only, 0, 1, Access::REMOTE_READ).is_ok());
    }

    #[test]
    fn a_dma_buf_of_the_kernels_memory() {
        let page = rustix::param::page_size() as u64;
        let Some(descriptor) = dma_buf(&buffer_that_stays(2 * page), 2 * page) else {
            println!("no /dev/udmabuf");
            return;
        };
        let length = page as usize;
        assert_eq!(refused(&descriptor, page, length + 1), Some(libc::EINVAL));
        let memory = map_shared(&descriptor, page, length, ALL).unwrap();
        memory.write_at(1, b"words").unwrap();
        let whole = map_shared(&descriptor, 0, 2 * length, Access::REMOTE_READ).unwrap();
        let mut words = [0; 5];
        whole.read_at(page + 1, &mut words).unwrap();
        assert_eq!(&words, b"words");
    }

    /// An unshrinkable buffer, as dma-bufs need.
    fn buffer_that_stays(length: u64) -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("buffer", flags).unwrap());
        file.set_len(length).unwrap();
        rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
        file
    }

    fn dma_buf(of: &File, size: u64) -> Option<std::os::fd::OwnedFd> {
        use std::os::fd::{AsRawFd, FromRawFd};
        /// `struct udmabuf_create`.
        #[repr(C)]
        struct Create {
            memfd: u32,
            flags: u32,
            offset: u64,
            size: u64,
        }
        const UDMABUF_CREATE: libc::c_ulong = 0x4018_7542;
        let device = File::options().read(true).write(true).open("/dev/udmabuf").ok()?;
        let create = Create { memfd: of.as_raw_fd() as u32, flags: 1, offset: 0, size };
        // SAFETY: the kernel reads the structure and returns a new descriptor
        unsafe {
            let descriptor =
                libc::ioctl(device.as_raw_fd(), UDMABUF_CREATE as _, &raw const create);
            assert!(descriptor >= 0, "{}", io::Error::last_os_error());
            Some(std::os::fd::OwnedFd::from_raw_fd(descriptor))
        }
    }
}
