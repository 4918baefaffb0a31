//! XRC domains and their targets.

use std::{
    cell::UnsafeCell,
    collections::HashMap,
    os::fd::BorrowedFd,
    sync::{Arc, Weak},
};

use roce_provider::{QueuePair, XrcDomain};

use super::{
    context::{ContextInner, Ctx},
    object::{Users, impl_object},
};
use crate::{prelude::*, sync::Mutex};

#[repr(C)]
pub(crate) struct Xrcd {
    c: UnsafeCell<ibv_xrcd>,
    shared: Arc<Shared>,
    pub(crate) ctx: Arc<ContextInner>,
    pub(crate) users: Users,
}

impl_object!(Xrcd, ibv_xrcd);

/// Shared by handles of a file.
struct Shared {
    domain: XrcDomain,
    targets: Mutex<HashMap<u32, Weak<Target>>>,
}

/// Destroyed with the last handle.
pub(crate) struct Target {
    pub(crate) qp: QueuePair,
}

type File = (String, u64, u64);

/// This process's domains. Each process has its own address, so no peer reaches two.
static OF_FILES: Mutex<Vec<(File, Weak<Shared>)>> = Mutex::new(Vec::new());

impl Xrcd {
    pub(crate) fn domain(&self) -> &XrcDomain {
        &self.shared.domain
    }

    pub(crate) fn create_target(&self) -> Result<Arc<Target>> {
        let target = Arc::new(Target { qp: self.shared.domain.create_target()? });
        let mut targets = self.shared.targets.lock();
        targets.retain(|_, target| target.strong_count() > 0);
        targets.insert(target.qp.qpn().get(), Arc::downgrade(&target));
        Ok(target)
    }

    pub(crate) fn find_target(&self, qpn: u32) -> Option<Arc<Target>> {
        self.shared.targets.lock().get(&qpn)?.upgrade()
    }
}

fn identity(ctx: &ContextInner, descriptor: c_int) -> Result<File> {
    refuse_if(descriptor < 0, Rule::NotADescriptor)?;
    // SAFETY: Stays open during the call; a closed descriptor gives an error.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
    Ok((ctx.context.name().to_owned(), stat.st_dev, stat.st_ino))
}

fn open(ctx: &ContextInner, descriptor: c_int, flags: c_int) -> Result<Arc<Shared>> {
    let new = || -> Result<_> {
        Ok(Arc::new(Shared { domain: ctx.context.open_xrcd()?, targets: Mutex::default() }))
    };
    if descriptor == -1 {
        return new();
    }
    let file = identity(ctx, descriptor)?;
    let mut of_files = OF_FILES.lock();
    of_files.retain(|(_, shared)| shared.strong_count() > 0);
    match of_files.iter().find(|(other, _)| *other == file).and_then(|(_, shared)| shared.upgrade())
    {
        Some(_) if flags & libc::O_EXCL != 0 => Err(Errno::of(Rule::XrcdExists)),
        Some(shared) => Ok(shared),
        None if flags & libc::O_CREAT == 0 => Err(Errno::of(Rule::XrcdMissing)),
        None => {
            let shared = new()?;
            of_files.push((file, Arc::downgrade(&shared)));
            Ok(shared)
        }
    }
}

operations!(
    fn ibv_open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
        let ctx = Ctx::get(context)?;
        let ibv_xrcd_init_attr { comp_mask, fd, oflags } =
            *attr.as_ref().ok_or(Rule::NullArgument)?;
        let both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        refuse_if(comp_mask & !both != 0, Rule::UnknownMask)?;
        refuse_if(comp_mask != both, Rule::Members)?;
        let shared = open(&ctx.inner, fd, oflags)?;
        let c = UnsafeCell::new(ibv_xrcd { context });
        Ok(Xrcd { c, shared, ctx: ctx.inner.clone(), users: Users::default() }.into_raw())
    }

    fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
        call::destroy::<Xrcd>(xrcd, |xrcd| xrcd.users.none_left())
    }
);
