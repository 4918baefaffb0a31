use std::{
    alloc::Layout,
    any::TypeId,
    collections::BTreeMap,
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    errno::{Errno, Result, refuse_if},
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

/// Context and handle, by which the kernel finds an object: overwriting them gives `ENOENT`.
pub(crate) type Identity = (usize, u32);

fn add<T: 'static>(pointer: *const c_void, identity: Identity, name: &'static str) {
    records::made(pointer.addr(), name);
    if check::is_on() {
        watcher::start();
    }
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    LIVE.lock().insert(pointer.addr(), Live { kind: TypeId::of::<T>(), identity, number });
}

/// `EINVAL` for null; `ENOENT` if unknown or of another kind.
fn find<T: 'static>(pointer: *const c_void) -> Result<Identity> {
    refuse_if(pointer.is_null(), Rule::NullObject)?;
    let live = LIVE.lock();
    let found = live.get(&pointer.addr()).filter(|live| live.kind == TypeId::of::<T>());
    let found = found.map(|live| live.identity);
    drop(live);
    match found {
        Some(_) => records::found(pointer.addr()),
        None => records::named(pointer.addr()),
    }
    found.ok_or(Errno::of(Rule::NoSuchObject))
}

/// A waiting call's object, which another thread may replace at the same address.
#[derive(Default)]
pub(crate) struct Awaited {
    number: Option<u64>,
}

impl Awaited {
    /// Runs `read` while nobody destroys the object. `EINVAL` for null; `EBADF` if gone or
    /// replaced. `read` is short and takes no lock.
    fn read<T: 'static, R>(
        &mut self,
        pointer: *const c_void,
        read: impl FnOnce() -> R,
    ) -> Result<R> {
        refuse_if(pointer.is_null(), Rule::NullObject)?;
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

/// Takes an object's contents. Under checks, its memory stays readable for a while.
///
/// # Safety
/// `object` comes from `Box::into_raw`, and only programs use it again. `program` points to or into
/// it.
unsafe fn take<T>(object: *mut T, program: *const c_void) -> T {
    LIVE.lock().remove(&program.addr());
    if !check::is_on() {
        // SAFETY: By the contract above.
        return *unsafe { Box::from_raw(object) };
    }
    // SAFETY: As above; the memory is not dropped.
    unsafe {
        let taken = object.read();
        records::destroyed(program.addr(), object.cast(), Layout::new::<T>());
        taken
    }
}

/// Has a public C structure, used only by pointer: programs access it at any time.
///
/// # Safety
/// The structure is at [`OFFSET`](Self::OFFSET) of `Self`, inside an `UnsafeCell`.
pub(crate) unsafe trait Object: Sized + 'static {
    type C;
    const NAME: &str;
    const OFFSET: usize = 0;

    /// # Safety
    /// The pointer is to a `Self::C`.
    unsafe fn identity(_: *const Self::C) -> Identity {
        Identity::default()
    }

    fn c(&self) -> *mut Self::C {
        std::ptr::from_ref(self).cast_mut().wrapping_byte_add(Self::OFFSET).cast()
    }

    fn into_raw(self) -> *mut Self::C {
        let object = Box::into_raw(Box::new(self));
        let pointer: *mut Self::C = object.wrapping_byte_add(Self::OFFSET).cast();
        // SAFETY: The object has its structure there.
        add::<Self>(pointer.cast(), unsafe { Self::identity(pointer) }, Self::NAME);
        pointer
    }

    /// `EINVAL` for null; `ENOENT` if not live, or with another [identity](Self::identity).
    ///
    /// # Safety
    /// The reference ends with the program's call. Programs must not destroy an object during
    /// another call on it.
    unsafe fn get<'a>(pointer: *const Self::C) -> Result<&'a Self> {
        let identity = find::<Self>(pointer.cast())?;
        // SAFETY: A live object of this type.
        if unsafe { Self::identity(pointer) } == identity {
            // SAFETY: As above, of which the structure is a part.
            Ok(unsafe { &*object_of::<Self>(pointer) })
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
        // SAFETY: Live meanwhile, of this type, and its structure is a part.
        awaited.read::<Self, R>(pointer.cast(), || read(unsafe { &*object_of::<Self>(pointer) }))
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

    /// Skips the lookup, for data-path calls; `EINVAL` for null.
    ///
    /// # Safety
    /// The pointer is null, or comes from [`into_raw`](Self::into_raw) and has not been [taken
    /// back](Self::from_raw). As for [`get`](Self::get).
    unsafe fn trust<'a>(pointer: *const Self::C) -> Result<&'a Self> {
        refuse_if(pointer.is_null(), Rule::NullObject)?;
        // SAFETY: By the contract; the structure is a part.
        Ok(unsafe { &*object_of::<Self>(pointer) })
    }

    /// # Safety
    /// [`get`](Self::get) has found the object, and the pointer is not used again.
    unsafe fn from_raw(pointer: *mut Self::C) -> Self {
        // SAFETY: `into_raw` made it by `Box::into_raw`.
        unsafe { take(object_of::<Self>(pointer).cast_mut(), pointer.cast()) }
    }
}

fn object_of<T: Object>(pointer: *const T::C) -> *const T {
    pointer.wrapping_byte_sub(T::OFFSET).cast()
}

/// Implements [`Object`] for a type that starts with its cell `c`. The members identify an object.
macro_rules! impl_object {
    ($object:ty, $c:ident $(, $context:ident, $handle:ident)?) => {
        const _: () = assert!(std::mem::offset_of!($object, c) == 0);

        // SAFETY: The cell comes first, as checked above.
        unsafe impl $crate::objects::object::Object for $object {
            type C = $c;
            const NAME: &str = stringify!($c);
            $(
                unsafe fn identity(c: *const $c) -> $crate::objects::object::Identity {
                    ((*c).$context.addr(), (*c).$handle)
                }
            )?
        }
    };
}
pub(crate) use impl_object;

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
