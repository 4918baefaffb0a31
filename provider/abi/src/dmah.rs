//! Handles that tell an adapter how to steer its DMA (PCIe processing hints). There is no DMA here,
//! and so none can be had.

use std::ffi::{c_int, c_void};

use crate::{
    errno::{self, Errno},
    export::export,
    layout::ibv_context,
};

unsafe extern "C" fn ibv_alloc_dmah(_: *mut ibv_context, _: *mut c_void) -> *mut c_void {
    errno::pointer(Err(Errno::NOTSUPP))
}

unsafe extern "C" fn ibv_dealloc_dmah(_: *mut c_void) -> c_int {
    errno::status(Err(Errno::NOTSUPP))
}

export!(ibv_alloc_dmah, ibv_dealloc_dmah);
