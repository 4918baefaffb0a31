//! Memory regions.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_uint, c_void},
    sync::{Arc, Mutex, PoisonError},
};

use roce_provider::{
    ForeignMemory, MemoryRegion, NullRegion, ReregMr,
    transport::mem::{Access, Memory},
};

use crate::{
    context::Home,
    errno::{self, Errno, Result},
    export::export,
    import::Importable,
    layout::verbs::{ibv_mr, ibv_pd},
    object::{Object, User},
    pd::Pd,
};

/// `IBV_ACCESS_ZERO_BASED`, `IBV_ACCESS_ON_DEMAND`, `IBV_ACCESS_HUGETLB`: not rights, but ways to
/// register.
pub(crate) const ZERO_BASED: c_uint = 1 << 5;
const ON_DEMAND: c_uint = 1 << 6;
const HUGETLB: c_uint = 1 << 7;
/// `IBV_ACCESS_OPTIONAL_RANGE`: hints that need not be followed.
const OPTIONAL: c_uint = 0x3FF0_0000;
/// The sizes of an address's part within its page.
const PAGE: u64 = 4096;

/// A memory region as programs hold it.
#[repr(C)]
pub(crate) struct Mr {
    c: UnsafeCell<ibv_mr>,
    pub(crate) home: Arc<Home>,
    state: Mutex<State>,
}

struct State {
    region: Region,
    _pd: User,
}

/// What a region is made of.
#[derive(Clone)]
pub(crate) enum Region {
    /// Memory.
    Memory(MemoryRegion),
    /// Memory of the device.
    Device(MemoryRegion, #[allow(dead_code, reason = "only held")] User),
    /// Nothing.
    Null(#[allow(dead_code, reason = "only held")] NullRegion),
}

// SAFETY: `repr(C)`, and it starts with its cell.
unsafe impl Object for Mr {
    type C = ibv_mr;
}

impl Region {
    /// The region in the adapter, if it has memory.
    pub(crate) fn memory(&self) -> Option<&MemoryRegion> {
        match self {
            Self::Memory(region) | Self::Device(region, _) => Some(region),
            Self::Null(_) => None,
        }
    }

    fn keys(&self) -> (u32, u32) {
        match self {
            Self::Memory(region) | Self::Device(region, _) => (region.lkey().0, region.rkey().0),
            Self::Null(region) => (region.lkey().0, 0),
        }
    }
}

/// The rights among access flags, whose numbers are the same here; `EINVAL` for unknown ones.
pub(crate) fn rights(access: c_uint) -> Result<Access> {
    Access::from_bits(access & !(ZERO_BASED | ON_DEMAND | HUGETLB | OPTIONAL)).ok_or(Errno::INVAL)
}

/// Whether the range is all of the address space, for which on-demand regions can be made.
fn is_implicit(address: *mut c_void, length: usize, access: c_uint) -> bool {
    access & ON_DEMAND != 0 && address.is_null() && length == usize::MAX
}

/// `EINVAL` where the kernel says so: no bytes, or an address for peers that lies elsewhere in its
/// page than the memory.
fn check(address: *mut c_void, length: usize, iova: u64, access: c_uint) -> Result<()> {
    let is_implicit = is_implicit(address, length, access);
    let wraps = !is_implicit && (address as usize).checked_add(length).is_none();
    if length == 0 || wraps || address as u64 % PAGE != iova % PAGE {
        Err(Errno::INVAL)
    } else {
        Ok(())
    }
}

impl Mr {
    /// A new region of `pd`, as programs see it.
    pub(crate) unsafe fn hand_out_new(
        pd: &Pd,
        region: Region,
        address: *mut c_void,
        length: usize,
    ) -> *mut ibv_mr {
        let handle = pd.home.new_handle();
        let mr = Self::with_handle(pd, region, address, length, handle).hand_out();
        pd.home.family.offer(handle, Importable::Mr(mr as usize));
        mr
    }

    /// One that has the number of another: they stand for the same region.
    pub(crate) fn with_handle(
        pd: &Pd,
        region: Region,
        address: *mut c_void,
        length: usize,
        handle: u32,
    ) -> Self {
        let (lkey, rkey) = region.keys();
        let c =
            ibv_mr { context: pd.context(), pd: pd.c(), addr: address, length, handle, lkey, rkey };
        let state = State { region, _pd: pd.users.add() };
        Self { c: UnsafeCell::new(c), home: pd.home.clone(), state: Mutex::new(state) }
    }

    /// What it is made of, for another that stands for the same region.
    pub(crate) fn shared(&self) -> Region {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).region.clone()
    }

    /// The region, for windows that are bound to it; none for one without memory.
    pub(crate) fn region(&self) -> Option<MemoryRegion> {
        self.shared().memory().cloned()
    }
}

unsafe fn register(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr> {
    let pd = Pd::get(pd)?;
    let rights = rights(access)?;
    check(address, length, iova, access)?;
    let start = if access & ZERO_BASED != 0 { 0 } else { iova };
    let region = if access & ON_DEMAND != 0 {
        pd.domain.register_raw_on_demand(address.cast(), length, start, rights)?
    } else {
        pd.domain.register_raw(address.cast(), length, start, rights)?
    };
    Ok(Mr::hand_out_new(pd, Region::Memory(region), address, length))
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    errno::pointer(register(pd, address, length, address as u64, access as c_uint))
}

unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    errno::pointer(register(pd, address, length, iova, access as c_uint))
}

unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    errno::pointer(register(pd, address, length, iova, access))
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let free = Mr::get(mr).and_then(|object| {
        if let Some(region) = object.region() {
            region.deregister()?;
        }
        object.home.family.withdraw((*mr).handle, &Importable::Mr(mr as usize));
        Ok(())
    });
    errno::status(free.map(|()| drop(Mr::take_back(mr))))
}

const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 1 << 1;
const CHANGE_ACCESS: c_int = 1 << 2;

unsafe fn reregister(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> Result<()> {
    let object = Mr::get(mr)?;
    let mut state = object.state.lock().unwrap_or_else(PoisonError::into_inner);
    let Region::Memory(region) = &state.region else { return Err(Errno::INVAL) };
    let new_pd = if flags & CHANGE_PD != 0 { Some(Pd::get(pd)?) } else { None };
    let access = access as c_uint;
    let rights = if flags & CHANGE_ACCESS != 0 { Some(rights(access)?) } else { None };
    let (address, length, iova) = if flags & CHANGE_TRANSLATION != 0 {
        check(address, length, address as u64, access)?;
        (address, length, address as u64)
    } else {
        ((*mr).addr, (*mr).length, region.address())
    };
    // also when only rights grow, the memory has to be looked at: it may not be writable
    let memory = if flags & (CHANGE_TRANSLATION | CHANGE_ACCESS) == 0 {
        None
    } else if access & ON_DEMAND != 0 || is_implicit(address, length, ON_DEMAND) {
        Some(ForeignMemory::on_demand(address.cast(), length))
    } else {
        Some(ForeignMemory::new(address.cast(), length, rights.unwrap_or(region.access()))?)
    };
    let memory = memory.map(|memory| (Arc::new(memory) as Arc<dyn Memory>, iova));
    let change = ReregMr { pd: new_pd.map(|pd| pd.domain.clone()), memory, access: rights };
    let region = region.reregister(change)?;
    state.region = Region::Memory(region);
    if let Some(pd) = new_pd {
        state._pd = pd.users.add();
        (*mr).pd = pd.c();
    }
    ((*mr).addr, (*mr).length) = (address, length);
    Ok(())
}

/// What `ibv_rereg_mr` says: `IBV_REREG_MR_ERR_INPUT` when nothing was tried,
/// `IBV_REREG_MR_ERR_CMD` when it failed.
const ERR_INPUT: c_int = -1;
const ERR_CMD: c_int = -4;

unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let unknown = flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS);
    if flags == 0
        || unknown != 0
        || flags & CHANGE_TRANSLATION != 0 && (address.is_null() || length == 0)
    {
        errno::set(libc::EINVAL);
        return ERR_INPUT;
    }
    if errno::status(reregister(mr, flags, pd, address, length, access)) == 0 { 0 } else { ERR_CMD }
}

/// `ibv_alloc_null_mr`.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let alloc = |pd: &Pd| {
        Ok(Mr::hand_out_new(pd, Region::Null(pd.domain.null_region()?), std::ptr::null_mut(), 0))
    };
    errno::pointer(Pd::get(pd).and_then(alloc))
}

/// Buffers of other devices are not reached from here.
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    _: *mut ibv_pd,
    _: u64,
    _: usize,
    _: u64,
    _: c_int,
    _: c_int,
) -> *mut ibv_mr {
    errno::pointer(Err(Errno::NOTSUPP))
}

export!(
    ibv_reg_mr,
    ibv_reg_mr_iova,
    ibv_reg_mr_iova2,
    ibv_dereg_mr,
    ibv_rereg_mr,
    ibv_reg_dmabuf_mr
);
