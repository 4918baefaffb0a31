//! XRC domains, and the targets in them.

use std::{
    cell::UnsafeCell,
    collections::HashMap,
    ffi::c_int,
    mem::MaybeUninit,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use roce_provider::{QueuePair, XrcDomain};

use crate::{
    context::{Ctx, Home},
    errno::{self, Errno, Result},
    layout::verbs::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr},
    object::{Object, Users},
};

/// An XRC domain as programs hold it.
#[repr(C)]
pub(crate) struct Xrcd {
    c: UnsafeCell<ibv_xrcd>,
    shared: Arc<Shared>,
    pub(crate) home: Arc<Home>,
    /// The targets and the XRC SRQs of this handle.
    pub(crate) users: Users,
}

// SAFETY: `repr(C)`, and it starts with its cell.
unsafe impl Object for Xrcd {
    type C = ibv_xrcd;
}

/// A domain, which all who have named the same file share.
struct Shared {
    domain: XrcDomain,
    targets: Mutex<HashMap<u32, Weak<Target>>>,
}

/// A target, which all who have opened it share; it is destroyed with the last of them.
pub(crate) struct Target {
    pub(crate) qp: QueuePair,
}

/// A device, and a file by its file system and number.
type File = (String, libc::dev_t, libc::ino_t);

/// The domains of files. Other processes have others: each has an address of its own, so that
/// nobody could reach into two.
static OF_FILES: Mutex<Vec<(File, Weak<Shared>)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Xrcd {
    pub(crate) fn domain(&self) -> &XrcDomain {
        &self.shared.domain
    }

    pub(crate) fn create_target(&self) -> Result<Arc<Target>> {
        let target = Arc::new(Target { qp: self.shared.domain.create_target()? });
        let mut targets = lock(&self.shared.targets);
        targets.retain(|_, target| target.strong_count() > 0);
        targets.insert(target.qp.qpn().get(), Arc::downgrade(&target));
        Ok(target)
    }

    pub(crate) fn find_target(&self, qpn: u32) -> Option<Arc<Target>> {
        lock(&self.shared.targets).get(&qpn)?.upgrade()
    }
}

fn identity(home: &Home, descriptor: c_int) -> Result<File> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: The place has the size that is written.
    if unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) } == -1 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: It has been written.
    let stat = unsafe { stat.assume_init() };
    Ok((home.context.name().to_owned(), stat.st_dev, stat.st_ino))
}

fn open(home: &Home, descriptor: c_int, flags: c_int) -> Result<Arc<Shared>> {
    let new = || -> Result<_> {
        Ok(Arc::new(Shared { domain: home.context.open_xrcd()?, targets: Mutex::default() }))
    };
    if descriptor == -1 {
        return new();
    }
    let file = identity(home, descriptor)?;
    let mut of_files = lock(&OF_FILES);
    of_files.retain(|(_, shared)| shared.strong_count() > 0);
    match of_files.iter().find(|(other, _)| *other == file).and_then(|(_, shared)| shared.upgrade())
    {
        Some(_) if flags & libc::O_EXCL != 0 => Err(Errno::INVAL),
        Some(shared) => Ok(shared),
        None if flags & libc::O_CREAT == 0 => Err(Errno(libc::EAGAIN)),
        None => {
            let shared = new()?;
            of_files.push((file, Arc::downgrade(&shared)));
            Ok(shared)
        }
    }
}

/// `ibv_xrcd_init_attr_mask`.
const FD: u32 = 1;
const OFLAGS: u32 = 1 << 1;

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    errno::pointer(Ctx::get(context).and_then(|ctx| {
        let ibv_xrcd_init_attr { comp_mask, fd, oflags } = *attr.as_ref().ok_or(Errno::INVAL)?;
        if comp_mask & !(FD | OFLAGS) != 0 {
            return Err(Errno::NOTSUPP);
        }
        if comp_mask != FD | OFLAGS {
            return Err(Errno::INVAL);
        }
        let shared = open(&ctx.home, fd, oflags)?;
        let c = UnsafeCell::new(ibv_xrcd { context });
        Ok(Xrcd { c, shared, home: ctx.home.clone(), users: Users::default() }.hand_out())
    }))
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let free = Xrcd::get(xrcd).and_then(|xrcd| xrcd.users.none_left());
    errno::status(free.map(|()| drop(Xrcd::take_back(xrcd))))
}
