//! DMA handles (PCIe hints): none without DMA.

use std::ffi::{c_int, c_void};

use crate::{
    call::{self, CallId},
    errno::Errno,
    export::export,
    layout::ibv_context,
    rule::Rule,
};

unsafe extern "C" fn ibv_alloc_dmah(_: *mut ibv_context, _: *mut c_void) -> *mut c_void {
    call::control::<*mut c_void>(CallId::ibv_alloc_dmah, || Err(Errno::of(Rule::NotSupported)))
}

unsafe extern "C" fn ibv_dealloc_dmah(_: *mut c_void) -> c_int {
    call::control::<()>(CallId::ibv_dealloc_dmah, || Err(Errno::of(Rule::NotSupported)))
}

export!(ibv_alloc_dmah, ibv_dealloc_dmah);
