//! Open devices.

use std::{
    cell::UnsafeCell,
    collections::HashMap,
    mem::offset_of,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    ptr::with_exposed_provenance,
    sync::Arc,
};

use roce_provider::{AsyncEvent, AsyncEvents, Context, OpenError, report};

use super::{command_file::CommandFile, device::Dev};
use crate::{
    hooks::check::{self, Kind, keys, waits, wake_ups},
    prelude::*,
    sync::{Changes, Mutex},
    translate::event::{self, Subject},
    wait::blocking,
};

/// Programs point to the last member of `verbs_context`.
#[repr(C)]
pub(crate) struct Ctx {
    verbs: UnsafeCell<verbs_context>,
    pub(crate) dev: &'static Dev,
    pub(crate) inner: Arc<ContextInner>,
    _imported_by: Option<OwnedFd>,
}

const _: () = assert!(offset_of!(Ctx, verbs) == 0);

// SAFETY: The structure is in the cell, which comes first.
unsafe impl Object for Ctx {
    type C = ibv_context;
    const NAME: &str = "ibv_context";
    const OFFSET: usize = offset_of!(verbs_context, context);
}

/// Shared with a context's objects.
pub(crate) struct ContextInner {
    pub(crate) context: Context,
    pub(crate) events: AsyncEvents,
    pub(crate) command_file: Arc<CommandFile>,
    objects: Arc<Mutex<Objects>>,
    acknowledged: Changes,
}

/// Objects by the adapter's numbers. Lock order: engine, event queue, objects.
#[derive(Default)]
struct Objects {
    pointers: HashMap<Subject, usize>,
    /// Taken and unacknowledged.
    unacknowledged: HashMap<usize, u32>,
}

impl Objects {
    /// True for events of these objects, the port or the device.
    fn accept_event(&self, event: AsyncEvent) -> bool {
        let is_heard = event::to_c(event).is_some_and(|(_, subject)| {
            matches!(subject, Subject::Port | Subject::Device)
                || self.pointers.contains_key(&subject)
        });
        if is_heard {
            keys::refused(&event);
        }
        is_heard
    }
}

impl ContextInner {
    /// True if both share object numbers.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.command_file, &other.command_file)
    }

    /// Identifies its device.
    pub(crate) fn device(&self) -> usize {
        std::ptr::from_ref(self.command_file.dev).addr()
    }

    pub(crate) fn new_handle(&self) -> u32 {
        self.command_file.new_handle()
    }

    /// If it is opened twice in a context, events name the first.
    pub(crate) fn add_object(&self, subject: Subject, pointer: usize) {
        self.objects.lock().pointers.entry(subject).or_insert(pointer);
    }

    /// True if events of objects may come.
    pub(crate) fn has_objects(&self) -> bool {
        !self.objects.lock().pointers.is_empty()
    }

    /// `None` if the object is gone.
    pub(crate) fn take_event(&self, subject: Subject) -> Option<usize> {
        let mut objects = self.objects.lock();
        let pointer = *objects.pointers.get(&subject)?;
        *objects.unacknowledged.entry(pointer).or_default() += 1;
        Some(pointer)
    }

    pub(crate) fn acknowledge(&self, pointer: usize, number: u32) {
        let mut objects = self.objects.lock();
        let taken = objects.unacknowledged.remove(&pointer).unwrap_or(0);
        if taken > number {
            objects.unacknowledged.insert(pointer, taken - number);
        }
        drop(objects);
        if taken <= number {
            self.acknowledged.announce();
        }
        if taken < number && check::is_on() {
            let what = format!("{number} events of {pointer:#x}, but only {taken} were returned");
            check::emit_here(Kind::TooManyAcknowledged, "called", what);
        }
    }

    /// Waits until taken events are acknowledged; reports a long wait as `kind`.
    pub(crate) fn remove_object(&self, subject: Subject, pointer: usize, kind: Kind) {
        let mut objects = self.objects.lock();
        if objects.pointers.get(&subject) == Some(&pointer) {
            objects.pointers.remove(&subject);
        }
        drop(objects);
        self.events.leave_out_unwanted();
        let left = || self.objects.lock().unacknowledged.get(&pointer).copied();
        let attempt = || left().is_none().then_some(());
        waits::for_acknowledgement(&self.acknowledged, attempt, kind, || {
            let number = left().unwrap_or(0);
            format!("{number} events of {pointer:#x} are not acknowledged")
        });
    }
}

impl Ctx {
    /// An import owns `imported_by`.
    pub(crate) fn open(
        opened: Result<Context, OpenError>,
        operations: verbs_context,
        command_file: Arc<CommandFile>,
        imported_by: Option<c_int>,
    ) -> Result<*mut ibv_context> {
        let dev = command_file.dev;
        let context = opened.map_err(|error| {
            report::line(format_args!("cannot open {}: {error}", dev.device().name()));
            Errno::from(error)
        })?;
        let objects: Arc<Mutex<Objects>> = Arc::default();
        let own = objects.clone();
        let events = context
            .read_async_events(move |event| own.lock().accept_event(event))
            .and_then(|events| blocking(&events).map(|()| events));
        let events = match events {
            Ok(events) => events,
            Err(error) => {
                dev.close(context);
                return Err(error.into());
            }
        };
        let async_fd = events.as_fd().as_raw_fd();
        let mut verbs = operations;
        verbs.sz = size_of::<verbs_context>();
        verbs.context.device = dev.c();
        verbs.context.cmd_fd = imported_by.unwrap_or(command_file.descriptor());
        verbs.context.async_fd = async_fd;
        verbs.context.num_comp_vectors = c_int::from(context.query_device().num_comp_vectors);
        verbs.context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        verbs.context.abi_compat = usize::MAX as *mut _;
        // SAFETY: An import owns the program's descriptor.
        let _imported_by =
            imported_by.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) });
        let inner =
            ContextInner { context, events, command_file, objects, acknowledged: Changes::new() };
        let (verbs, inner) = (UnsafeCell::new(verbs), Arc::new(inner));
        let context = Self { verbs, dev, inner, _imported_by }.into_raw();
        wake_ups::add_channel(context as usize, async_fd, true, endless);
        Ok(context)
    }
}

/// Explains why no asynchronous event comes.
fn endless(call: &str, context: usize) -> Option<String> {
    // SAFETY: Only a live context is found.
    let ctx = unsafe { Ctx::get(with_exposed_provenance(context)) }.ok()?;
    wake_ups::endless_async(call, ctx.inner.has_objects())
}

calls!(
    fn ibv_close_device(context: *mut ibv_context) -> c_int {
        if let Err(error) = Ctx::get(context) {
            call::fail(CallId::ibv_close_device.name(), &error);
            return Ok(error.number()); // not -1
        }
        wake_ups::remove_channel(context as usize);
        let Ctx { dev, inner, .. } = Ctx::from_raw(context);
        dev.close(inner);
        Ok(0)
    }
);
