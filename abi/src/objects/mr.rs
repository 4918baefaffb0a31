use std::{cell::UnsafeCell, sync::Arc};

use roce_provider::{
    ForeignMemory, GpuMemory, MemoryRegion, NullRegion, ReregMr, transport::mem::Memory,
};

use super::{
    command_file::CommandFile,
    context::ContextInner,
    object::{User, impl_object},
    pd::Pd,
};
use crate::{
    hooks::check::{
        self, keys,
        requests::{self, RegionMemory},
        watch,
    },
    prelude::*,
    sync::Mutex,
    translate::rights,
};

pub(crate) const PAGE: u64 = 4096;

#[repr(C)]
pub(crate) struct Mr {
    c: UnsafeCell<ibv_mr>,
    pub(crate) ctx: Arc<ContextInner>,
    state: Mutex<State>,
}

struct State {
    region: Region,
    /// `None` without memory: as on mlx5, the domain may go first.
    _pd: Option<User>,
}

#[derive(Clone)]
pub(crate) enum Region {
    Memory(MemoryRegion),
    DmaBuf(MemoryRegion),
    Device(MemoryRegion, #[allow(dead_code, reason = "only held")] User),
    Null(#[allow(dead_code, reason = "only held")] NullRegion),
}

impl_object!(Mr, ibv_mr, context, handle);

impl Region {
    /// `ENOENT` for an unknown key, `EPERM` for another domain's.
    ///
    /// # Safety
    /// Importable regions exist.
    pub(crate) unsafe fn find(
        command_file: &CommandFile,
        pd_handle: u32,
        lkey: u32,
    ) -> Result<Self> {
        let find = |mr: *const ibv_mr| {
            if (*mr).lkey != lkey {
                return None;
            }
            let same_domain = Pd::get((*mr).pd).is_ok() && (*(*mr).pd).handle == pd_handle;
            Some(if same_domain {
                Mr::get(mr).map(Mr::shared)
            } else {
                Err(Errno::of(Rule::ReadOnlyRegion))
            })
        };
        command_file.find::<Mr, _>(find).unwrap_or(Err(Errno::of(Rule::NoSuchObject)))
    }

    pub(crate) fn memory(&self) -> Option<&MemoryRegion> {
        match self {
            Self::Memory(region) | Self::DmaBuf(region) | Self::Device(region, _) => Some(region),
            Self::Null(_) => None,
        }
    }

    fn keys(&self) -> (u32, u32) {
        match self {
            Self::Memory(region) | Self::DmaBuf(region) | Self::Device(region, _) => {
                (region.lkey().0, region.rkey().0)
            }
            Self::Null(region) => (region.lkey().0, 0),
        }
    }
}

/// True for the whole address space on demand.
fn is_implicit(address: *mut c_void, length: usize, access: c_uint) -> bool {
    access & IBV_ACCESS_ON_DEMAND != 0 && address.is_null() && length == usize::MAX
}

/// Requires equal page offsets (`EINVAL`), as the kernel.
fn check(address: *mut c_void, length: usize, iova: u64, access: c_uint) -> Result<()> {
    let is_implicit = is_implicit(address, length, access);
    let wraps = !is_implicit && (address as usize).checked_add(length).is_none();
    if wraps || address as u64 % PAGE != iova % PAGE { Err(Errno::of(Rule::Wraps)) } else { Ok(()) }
}

impl Mr {
    pub(crate) unsafe fn create_raw(
        pd: &Pd,
        region: Region,
        address: *mut c_void,
        length: usize,
    ) -> *mut ibv_mr {
        let handle = pd.ctx.new_handle();
        let mr = Self::with_handle(pd, region, address, length, handle).into_raw();
        pd.ctx.command_file.insert::<Self>(handle, mr);
        keys::registered((*mr).lkey);
        mr
    }

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
        let has_memory = region.memory().is_some();
        let state = State { region, _pd: has_memory.then(|| pd.users.add()) };
        Self { c: UnsafeCell::new(c), ctx: pd.ctx.clone(), state: Mutex::new(state) }
    }

    pub(crate) fn shared(&self) -> Region {
        self.state.lock().region.clone()
    }

    pub(crate) fn region(&self) -> Option<MemoryRegion> {
        self.shared().memory().cloned()
    }
}

pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr> {
    let pd = Pd::get(pd)?;
    let rights = rights::from_c(access)?;
    check(address, length, iova, access)?;
    let start = if access & IBV_ACCESS_ZERO_BASED != 0 { 0 } else { iova };
    let gpu = GpuMemory::find(address as u64, length)?;
    // the processor cannot compare memory of a GPU
    let in_process = if gpu.is_some() { 0 } else { length };
    let memory = match gpu {
        Some(memory) => Some(Arc::new(memory) as Arc<dyn Memory>),
        None if access & IBV_ACCESS_ON_DEMAND != 0 => {
            Some(watch::watched(ForeignMemory::on_demand(address.cast(), length)))
        }
        None if check::is_on() => {
            ForeignMemory::new(address.cast(), length, rights).ok().map(watch::watched)
        }
        None => None,
    };
    let region = match memory {
        Some(memory) => pd.domain.register(memory, start, rights)?,
        // explains unreachable memory
        None => pd.domain.register_raw(address.cast(), length, start, rights)?,
    };
    let lkey = region.lkey().0;
    let mr = Mr::create_raw(pd, Region::Memory(region), address, length);
    let memory = RegionMemory {
        iova: start,
        address: address as usize,
        length: in_process,
        is_pinned: access & IBV_ACCESS_ON_DEMAND == 0,
    };
    requests::add_region(pd.ctx.device(), lkey, memory);
    Ok(mr)
}

calls!(
    fn ibv_reg_mr(
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr {
        register(pd, address, length, address as u64, access as c_uint)
    }

    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr {
        register(pd, address, length, iova, access as c_uint)
    }

    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr {
        register(pd, address, length, iova, access)
    }

    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
        call::destroy::<Mr>(mr, |object| {
            let (device, lkey) = (object.ctx.device(), (*mr).lkey);
            let user = requests::user_of_region(device, lkey);
            if let Some(region) = object.region() {
                region.deregister()?;
            }
            keys::deregistered(lkey, (*mr).rkey);
            requests::remove_region(device, lkey);
            requests::region_gone(CallId::ibv_dereg_mr, lkey, user);
            object.ctx.command_file.remove::<Mr>((*mr).handle, mr);
            Ok(())
        })
    }

    /// Returns `IBV_REREG_MR_ERR_INPUT` if untried, `IBV_REREG_MR_ERR_CMD` if failed.
    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int {
        let unknown = flags
            & !(IBV_REREG_MR_CHANGE_TRANSLATION
                | IBV_REREG_MR_CHANGE_PD
                | IBV_REREG_MR_CHANGE_ACCESS);
        if flags == 0
            || unknown != 0
            || flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 && (address.is_null() || length == 0)
        {
            call::fail(CallId::ibv_rereg_mr.name(), &Errno::of(Rule::Rereg));
            return Ok(IBV_REREG_MR_ERR_INPUT);
        }
        reregister(mr, flags, pd, address, length, access)?;
        Ok(0)
    }
);

unsafe fn reregister(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> Result<()> {
    let object = Mr::get(mr)?;
    let mut state = object.state.lock();
    let Region::Memory(region) = &state.region else { return Err(Errno::of(Rule::NoRegion)) };
    let new_pd = if flags & IBV_REREG_MR_CHANGE_PD != 0 { Some(Pd::get(pd)?) } else { None };
    let access = access as c_uint;
    let rights =
        if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 { Some(rights::from_c(access)?) } else { None };
    let (address, length, iova) = if flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
        check(address, length, address as u64, access)?;
        (address, length, address as u64)
    } else {
        ((*mr).addr, (*mr).length, region.address())
    };
    let gpu = GpuMemory::find(address as u64, length)?;
    let in_process = if gpu.is_some() { 0 } else { length };
    // memory may be read-only: check it even if only rights grow
    let memory = if flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS) == 0 {
        None
    } else if let Some(memory) = gpu {
        Some(Arc::new(memory) as Arc<dyn Memory>)
    } else if access & IBV_ACCESS_ON_DEMAND != 0
        || is_implicit(address, length, IBV_ACCESS_ON_DEMAND)
    {
        Some(watch::watched(ForeignMemory::on_demand(address.cast(), length)))
    } else {
        let rights = rights.unwrap_or(region.access());
        Some(watch::watched(ForeignMemory::new(address.cast(), length, rights)?))
    };
    let memory = memory.map(|memory| (memory, iova));
    let user = requests::user_of_region(object.ctx.device(), (*mr).lkey);
    let before = region.address()..region.address().saturating_add(region.len() as u64);
    let change = ReregMr { pd: new_pd.map(|pd| pd.domain.clone()), memory, access: rights };
    let region = region.reregister(change)?;
    state.region = Region::Memory(region);
    if let Some(pd) = new_pd {
        state._pd = Some(pd.users.add());
        (*mr).pd = pd.c();
    }
    ((*mr).addr, (*mr).length) = (address, length);
    let memory = RegionMemory {
        iova,
        address: address as usize,
        length: in_process,
        is_pinned: access & IBV_ACCESS_ON_DEMAND == 0,
    };
    keys::reregistered((*mr).lkey, (*mr).rkey, before);
    requests::add_region(object.ctx.device(), (*mr).lkey, memory);
    requests::region_gone(CallId::ibv_rereg_mr, (*mr).lkey, user);
    Ok(())
}

operations!(
    fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
        let pd = Pd::get(pd)?;
        Ok(Mr::create_raw(pd, Region::Null(pd.domain.null_region()?), std::ptr::null_mut(), 0))
    }
);
