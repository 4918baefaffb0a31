//! Objects held by programs.

use std::{
    alloc::Layout,
    any::TypeId,
    cell::UnsafeCell,
    collections::BTreeMap,
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    errno::{Errno, Result},
    hooks::check::{self, records, watcher},
    rule::Rule,
    sync::Mutex,
};

/// Live objects; nothing else is dereferenced.
static LIVE: Mutex<BTreeMap<usize, Live>> = Mutex::new(BTreeMap::new());

struct Live {
    kind: TypeId,
    identity: Identity,
    /// Never reused.
    number: u64,
}

/// Members by which the kernel finds an object. If a program overwrites one, its calls get
/// `ENOENT`, as from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Identity {
    context: usize,
    handle: u32,
}

impl Identity {
    pub(crate) fn new<C>(context: *mut C, handle: u32) -> Self {
        Self { context: context.addr(), handle }
    }
}

pub(crate) fn add<T: 'static>(pointer: *const c_void, identity: Identity, name: &'static str) {
    records::made(pointer.addr(), name);
    if check::is_on() {
        watcher::start();
    }
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    LIVE.lock().insert(pointer.addr(), Live { kind: TypeId::of::<T>(), identity, number });
}

pub(crate) fn remove(pointer: *const c_void) {
    LIVE.lock().remove(&pointer.addr());
}

/// Returns a live object's identity: `EINVAL` for null, `ENOENT` if unknown or of another kind.
pub(crate) fn find<T: 'static>(pointer: *const c_void) -> Result<Identity> {
    if pointer.is_null() {
        return Err(Errno::of(Rule::NullObject));
    }
    let live = LIVE.lock();
    let found = live.get(&pointer.addr()).filter(|live| live.kind == TypeId::of::<T>());
    found.map(|live| live.identity).ok_or_else(|| {
        records::named(pointer.addr());
        Errno::of(Rule::NoSuchObject)
    })
}

/// The object of a waiting call. Another thread may replace it at the same address.
#[derive(Default)]
pub(crate) struct Awaited {
    number: Option<u64>,
}

impl Awaited {
    /// Returns `read`'s shares of an object that nobody destroys meanwhile. `EINVAL` for null;
    /// `EBADF` if it is gone or replaced. `read` is short and takes no lock.
    pub(crate) fn read<T: 'static, R>(
        &mut self,
        pointer: *const c_void,
        read: impl FnOnce() -> R,
    ) -> Result<R> {
        if pointer.is_null() {
            return Err(Errno::of(Rule::NullObject));
        }
        let live = LIVE.lock();
        let found = live.get(&pointer.addr()).filter(|live| {
            live.kind == TypeId::of::<T>() && self.number.is_none_or(|number| number == live.number)
        });
        let Some(found) = found else {
            records::named(pointer.addr());
            return Err(Errno::of(Rule::NothingToWaitFor));
        };
        self.number = Some(found.number);
        Ok(read())
    }
}

/// Takes an object's contents. Under checks its memory stays for a while: programs may still read
/// it.
///
/// # Safety
/// The pointer came from `Box::into_raw`, and is not used again but by such programs. `program` is
/// the program's pointer to it, which is the same, or leads inside.
pub(crate) unsafe fn take<T>(object: *mut T, program: *const c_void) -> T {
    remove(program);
    if !check::is_on() {
        // SAFETY: By the contract above.
        return *unsafe { Box::from_raw(object) };
    }
    // SAFETY: As above; what is read is not dropped where it was.
    unsafe {
        let taken = object.read();
        records::destroyed(program.addr(), object.cast(), Layout::new::<T>());
        taken
    }
}

/// Object that starts with its public C structure. Programs access that at any time: use only its
/// pointer.
///
/// # Safety
/// `Self` is `repr(C)` and starts with `UnsafeCell<Self::C>`.
pub(crate) unsafe trait Object: Sized + 'static {
    type C;
    const NAME: &str;

    /// Reads the identity.
    ///
    /// # Safety
    /// The pointer is to such a structure.
    unsafe fn identity(_: *const Self::C) -> Identity {
        Identity::default()
    }

    fn c(&self) -> *mut Self::C {
        std::ptr::from_ref(self).cast::<UnsafeCell<Self::C>>().cast_mut().cast()
    }

    fn into_raw(self) -> *mut Self::C {
        let pointer: *mut Self::C = Box::into_raw(Box::new(self)).cast();
        // SAFETY: The object starts with its structure.
        add::<Self>(pointer.cast(), unsafe { Self::identity(pointer) }, Self::NAME);
        pointer
    }

    /// Returns a program's object. `EINVAL` for null; `ENOENT` if not live, or with another
    /// [identity](Self::identity).
    ///
    /// # Safety
    /// The reference is not used beyond the call that the program has made. Destroying an object
    /// during another call on it is as wrong as with any other library.
    unsafe fn get<'a>(pointer: *const Self::C) -> Result<&'a Self> {
        let identity = find::<Self>(pointer.cast())?;
        // SAFETY: It is in the list, and so an object of this type.
        if unsafe { Self::identity(pointer) } == identity {
            // SAFETY: As above; the object starts where its structure does.
            Ok(unsafe { &*pointer.cast::<Self>() })
        } else {
            Err(Errno::of(Rule::NoSuchObject))
        }
    }

    /// [Reads](Awaited::read) the object of a waiting call.
    ///
    /// # Safety
    /// Nothing that `read` returns refers to the object.
    unsafe fn share<R>(
        pointer: *const Self::C,
        awaited: &mut Awaited,
        read: impl FnOnce(&Self) -> R,
    ) -> Result<R> {
        // SAFETY: It is in the list meanwhile, and so an object of this type, which starts where
        // its structure does.
        awaited.read::<Self, R>(pointer.cast(), || read(unsafe { &*pointer.cast::<Self>() }))
    }

    /// Like [`get`](Self::get); null is `None`.
    ///
    /// # Safety
    /// As for [`get`](Self::get).
    unsafe fn get_optional<'a>(pointer: *const Self::C) -> Result<Option<&'a Self>> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: The same contract.
        unsafe { Self::get(pointer) }.map(Some)
    }

    /// Returns an object without the lookup, for calls that move data; `EINVAL` for null.
    ///
    /// # Safety
    /// The pointer is null, or [`into_raw`](Self::into_raw) gave it and it has not been [taken
    /// back](Self::from_raw); and as for [`get`](Self::get).
    unsafe fn trust<'a>(pointer: *const Self::C) -> Result<&'a Self> {
        // SAFETY: By the contract above; the object starts where its structure does.
        unsafe { pointer.cast::<Self>().as_ref() }.ok_or_else(|| Errno::of(Rule::NullObject))
    }

    /// Takes the object back.
    ///
    /// # Safety
    /// [`get`](Self::get) has found the object, and the pointer is not used again.
    unsafe fn from_raw(pointer: *mut Self::C) -> Self {
        // SAFETY: By the contract above, it came from `Box::into_raw` in `into_raw`.
        unsafe { take(pointer.cast(), pointer.cast()) }
    }
}

/// Count of dependents; 0 allows destruction.
#[derive(Default)]
pub(crate) struct Users(Arc<()>);

/// Prevents an object's destruction.
#[derive(Clone)]
pub(crate) struct User(#[allow(dead_code, reason = "only held")] Arc<()>);

impl Users {
    pub(crate) fn add(&self) -> User {
        User(self.0.clone())
    }

    /// `EBUSY` while any exist.
    pub(crate) fn none_left(&self) -> Result<()> {
        if Arc::strong_count(&self.0) == 1 { Ok(()) } else { Err(Errno::of(Rule::StillUsed)) }
    }
}
