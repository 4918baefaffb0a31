//! Protection domains.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use roce_transport::adapter::{ObjectError, PdId};

use super::context::Context;

/// A protection domain (`ibv_pd`): what is made in one can be used together and with nothing else.
///
/// A parent domain (`ibv_alloc_parent_domain`) is one too: see
/// [`parent_domain`](Self::parent_domain).
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) inner: Arc<DomainInner>,
}

pub(super) struct DomainInner {
    pub(super) context: Context,
    pub(super) id: PdId,
    /// What a parent domain stands in front of, and the thread domain that it brings in.
    parent_of: Option<(Arc<DomainInner>, Option<ThreadDomain>)>,
}

/// A promise that what is made with it is used by one thread at a time (`ibv_td`). It goes into a
/// [parent domain](ProtectionDomain::parent_domain). Nothing here needs the promise: posting takes
/// the device's lock anyway, which costs little without contention, and breaking it does no harm.
#[derive(Clone, Debug)]
pub struct ThreadDomain {
    pub(super) inner: Context,
}

/// A protection domain, if it is still there.
pub(crate) struct WeakDomain(Weak<DomainInner>);

impl WeakDomain {
    pub(crate) fn upgrade(&self) -> Option<ProtectionDomain> {
        self.0.upgrade().map(|inner| ProtectionDomain { inner })
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        if self.parent_of.is_some() {
            return; // the domain itself may have other handles
        }
        // everything made in it held it, so nothing uses it any more
        let _ = self.context.inner.engine.lock().adapter().dealloc_pd(self.id);
    }
}

impl Context {
    /// Makes a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, ObjectError> {
        let id = self.inner.engine.lock().adapter().alloc_pd()?;
        let inner = DomainInner { context: self.clone(), id, parent_of: None };
        Ok(ProtectionDomain { inner: Arc::new(inner) })
    }

    /// Makes a thread domain (`ibv_alloc_td`).
    #[must_use]
    pub fn alloc_td(&self) -> ThreadDomain {
        ThreadDomain { inner: self.clone() }
    }
}

impl ProtectionDomain {
    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn downgrade(&self) -> WeakDomain {
        WeakDomain(Arc::downgrade(&self.inner))
    }

    /// Makes a parent domain (`ibv_alloc_parent_domain`): the same protection domain under another
    /// handle, for objects that one thread at a time will use. What is made in it goes with what is
    /// made in this one, and keeps both alive.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`] for a thread domain of another device (`EINVAL`).
    pub fn parent_domain(&self, thread: Option<&ThreadDomain>) -> Result<Self, ObjectError> {
        let context = &self.inner.context;
        if thread.is_some_and(|thread| !Arc::ptr_eq(&thread.inner.inner, &context.inner)) {
            return Err(ObjectError::Unknown);
        }
        let parent_of = Some((self.inner.clone(), thread.cloned()));
        Ok(Self {
            inner: Arc::new(DomainInner { context: context.clone(), id: self.inner.id, parent_of }),
        })
    }

    /// The thread domain that a parent domain was made with.
    #[must_use]
    pub fn thread_domain(&self) -> Option<ThreadDomain> {
        self.inner.parent_of.as_ref()?.1.clone()
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("context", &self.inner.context)
            .field("id", &self.inner.id)
            .field("is_parent", &self.inner.parent_of.is_some())
            .finish_non_exhaustive()
    }
}
