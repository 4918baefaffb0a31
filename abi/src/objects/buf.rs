//! `ibv_buf`, and generic registration.

use std::alloc::{Layout, alloc, dealloc};

use super::{dma_buf, mr::register, pd::Pd};
use crate::prelude::*;

/// Opaque to programs.
pub(crate) struct Buf {
    pd: *mut ibv_pd,
    address: *mut c_void,
    layout: Layout,
}

impl Buf {
    /// `EINVAL` for another domain, or outside.
    fn check(&self, pd: *mut ibv_pd, address: *mut c_void, length: usize) -> Result<()> {
        let offset = (address as usize).checked_sub(self.address as usize);
        let room = offset.and_then(|offset| self.layout.size().checked_sub(offset));
        let inside = room.is_some_and(|room| length <= room);
        if self.pd == pd && inside { Ok(()) } else { Err(Errno::of(Rule::BufferRegion)) }
    }
}

calls!(
    fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, to: *mut *mut Buf) -> *mut c_void {
        refuse_if(to.is_null(), Rule::NullArgument)?;
        Pd::get(pd)?;
        // the allocator needs a byte
        let layout = Layout::from_size_align(size.max(1), rustix::param::page_size())
            .map_err(|_| Rule::NoMemory)?;
        let address = alloc(layout).cast::<c_void>();
        refuse_if(address.is_null(), Rule::NoMemory)?;
        *to = Box::into_raw(Box::new(Buf { pd, address, layout }));
        Ok(address)
    }

    fn ibv_free_buf(buf: *mut Buf) {
        if !buf.is_null() {
            let buf = Box::from_raw(buf);
            dealloc(buf.address.cast(), buf.layout);
        }
    }

    /// Process memory has no descriptor: `ENODATA`.
    fn ibv_export_buf_dmabuf_fd(_: *mut Buf) -> c_int {
        Err::<(), _>(Errno::of(Rule::NoDescriptor))
    }

    fn ibv_reg_buf_mr(
        pd: *mut ibv_pd,
        buf: *mut Buf,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr {
        let buf = buf.as_ref().ok_or(Rule::NullArgument)?;
        buf.check(pd, address, length)?;
        register(pd, address, length, address as u64, access as c_uint)
    }

    /// Reads the mask's members only: the structure has grown.
    fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr {
        const OF_DMABUF: u64 = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
        const OF_MEMORY: u64 = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_BUF;
        refuse_if(attr.is_null(), Rule::NullArgument)?;
        let mask = (*attr).comp_mask;
        let (length, access) = ((*attr).length, (*attr).access as c_uint);
        if mask & IBV_REG_MR_MASK_BUF != 0 {
            let buf = (*attr).buf.cast::<Buf>().as_ref().ok_or(Rule::NullArgument)?;
            refuse_if(mask & IBV_REG_MR_MASK_ADDR == 0 || mask & OF_DMABUF != 0, Rule::Members)?;
            buf.check(pd, (*attr).addr, length)?;
        }
        // DMA handles are unsupported
        refuse_if(mask & !(OF_MEMORY | OF_DMABUF) != 0, Rule::NotSupported)?;
        if mask == OF_DMABUF | IBV_REG_MR_MASK_IOVA {
            let (offset, iova, descriptor) = ((*attr).fd_offset, (*attr).iova, (*attr).fd);
            return dma_buf::register(pd, offset, length, iova, descriptor, access);
        }
        refuse_if(mask & OF_DMABUF != 0 || mask & IBV_REG_MR_MASK_ADDR == 0, Rule::Members)?;
        let address = (*attr).addr;
        let iova = if mask & IBV_REG_MR_MASK_IOVA != 0 { (*attr).iova } else { address as u64 };
        register(pd, address, length, iova, access)
    }
);

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::ptr::null_mut;

    use super::*;
    use crate::{
        objects::mr::ibv_dereg_mr,
        tests::{Allocated, Opened, errno},
    };

    #[test]
    fn a_buffer_is_registered_by_its_domain_as_far_as_it_goes() {
        let context = Opened::new();
        let (pd, other) = (Allocated::new(&context), Allocated::new(&context));
        unsafe {
            let mut buf = null_mut();
            assert!(ibv_alloc_buf(pd.0, usize::MAX, &raw mut buf).is_null());
            assert_eq!(errno(), libc::ENOMEM);
            let address = ibv_alloc_buf(pd.0, 10_000, &raw mut buf);
            assert_eq!(address as usize % 4096, 0);
            address.cast::<u8>().write_bytes(7, 10_000);
            assert_eq!((ibv_export_buf_dmabuf_fd(buf), errno()), (-1, libc::ENODATA));

            let mr = ibv_reg_buf_mr(pd.0, buf, address.byte_add(100), 9_900, 1);
            assert_eq!(((*mr).addr, (*mr).length), (address.byte_add(100), 9_900));
            assert_eq!(ibv_dereg_mr(mr), 0);
            for (domain, offset, length) in
                [(other.0, 0, 10_000), (pd.0, 1, 10_000), (pd.0, -1, 1), (pd.0, 10_001, 0)]
            {
                let place = address.wrapping_byte_offset(offset);
                let refused = ibv_reg_buf_mr(domain, buf, place, length, 1);
                assert_eq!((refused, errno()), (null_mut(), libc::EINVAL), "{offset} {length}");
            }
            ibv_free_buf(buf);
            ibv_free_buf(null_mut());
        }
    }

    #[test]
    fn memory_is_registered_as_the_mask_says() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        let mut buf = null_mut();
        let address = unsafe { ibv_alloc_buf(pd.0, 8192, &raw mut buf) };
        let all = ibv_mr_init_attr {
            length: 4096,
            access: 1,
            iova: 1 << 40,
            addr: address,
            buf: buf.cast(),
            fd: -1,
            ..ibv_mr_init_attr::zeroed()
        };
        let reg =
            |comp_mask| unsafe { ibv_reg_mr_ex(pd.0, &mut ibv_mr_init_attr { comp_mask, ..all }) };
        const ADDR: u64 = IBV_REG_MR_MASK_ADDR;
        for mask in [ADDR, ADDR | IBV_REG_MR_MASK_IOVA, ADDR | IBV_REG_MR_MASK_BUF] {
            let mr = reg(mask);
            assert!(!mr.is_null(), "{mask}: {}", errno());
            assert_eq!(unsafe { ((*mr).addr, ibv_dereg_mr(mr)) }, (address, 0));
        }
        let (fd, offset) = (IBV_REG_MR_MASK_FD, IBV_REG_MR_MASK_FD_OFFSET);
        for (mask, expected) in [
            (0, libc::EINVAL),
            (IBV_REG_MR_MASK_IOVA, libc::EINVAL),
            (IBV_REG_MR_MASK_BUF, libc::EINVAL),
            (ADDR | offset, libc::EINVAL),
            (ADDR | IBV_REG_MR_MASK_BUF | fd, libc::EINVAL),
            (fd | offset | IBV_REG_MR_MASK_IOVA, libc::EOPNOTSUPP), // no driver of a GPU
            (fd | IBV_REG_MR_MASK_IOVA, libc::EINVAL),
            (fd | offset, libc::EINVAL),
            (ADDR | IBV_REG_MR_MASK_DMAH, libc::EOPNOTSUPP),
            (ADDR | 1 << 6, libc::EOPNOTSUPP),
        ] {
            assert_eq!((reg(mask), errno()), (null_mut(), expected), "{mask:#x}");
        }
        unsafe { ibv_free_buf(buf) };
    }
}
