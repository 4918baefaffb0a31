use std::{
    ffi::{c_int, c_void},
    sync::Mutex,
};

use super::{
    library::{Library, Structure, constant, get, mask, operation},
    rng::Rng,
};

pub(crate) type Pointer = *mut c_void;

/// For regions.
const ARENA: usize = 64 << 10;

/// Shared by threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Object(pub(crate) Pointer);

// SAFETY: Verbs objects are thread-safe.
unsafe impl Send for Object {}
// SAFETY: As above.
unsafe impl Sync for Object {}

/// An aligned `union ibv_gid`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Gid(pub(crate) [u8; 16]);

pub(crate) struct Shared {
    pub(crate) library: Library,
    pub(crate) context: Object,
    pub(crate) pd: Object,
    pub(crate) cq: Object,
    pub(crate) mr: Object,
    pub(crate) arena: Mutex<Box<[u64]>>,
    pub(crate) start: u64,
    pub(crate) gid: Gid,
}

// SAFETY: The library is thread-safe.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn open() -> Self {
        let library = Library::load();
        let mut arena = vec![0u64; ARENA / 8].into_boxed_slice();
        let start = arena.as_mut_ptr();
        let mut gid = Gid([0; 16]);
        // SAFETY: As C programs do.
        unsafe {
            let [context, pd, cq, mr] = library.open(&raw mut *arena, 0xF);
            let query_gid: unsafe extern "C" fn(Pointer, u8, c_int, *mut Gid) -> c_int =
                library.function("ibv_query_gid");
            assert_eq!(query_gid(context, 1, 0, &raw mut gid), 0);
            // events are polled, never awaited
            let events: c_int = get("ibv_context", context, "async_fd");
            assert_eq!(libc::fcntl(events, libc::F_SETFL, libc::O_NONBLOCK), 0);
            let [context, pd, cq, mr] = [context, pd, cq, mr].map(Object);
            let start = start as u64;
            Self { library, context, pd, cq, mr, arena: Mutex::new(arena), start, gid }
        }
    }

    pub(crate) fn close(self) {
        let objects = [self.context, self.pd, self.cq, self.mr];
        self.library.close(objects.map(|object| object.0));
        drop(self.arena);
    }
}

pub(crate) fn destroyed(library: Library, destroy: &str, object: Object) -> c_int {
    // SAFETY: A live object, and its destructor.
    unsafe {
        let function: unsafe extern "C" fn(Pointer) -> c_int = match destroy {
            // no symbol; the object starts with its context
            DEALLOC_MW => operation(*object.0.cast::<Pointer>(), DEALLOC_MW),
            _ => library.function(destroy),
        };
        function(object.0)
    }
}

const DEALLOC_MW: &str = "dealloc_mw";

/// By destructor.
pub(crate) const KINDS: [&str; 9] = [
    "ibv_destroy_qp",
    "ibv_destroy_srq",
    "ibv_destroy_ah",
    DEALLOC_MW,
    "ibv_dereg_mr",
    "ibv_destroy_cq",
    "ibv_destroy_comp_channel",
    "ibv_dealloc_pd",
    "rdma_destroy_id",
];
pub(crate) const QP: usize = 0;
pub(crate) const SRQ: usize = 1;
pub(crate) const AH: usize = 2;
pub(crate) const MW: usize = 3;
pub(crate) const MR: usize = 4;
pub(crate) const CQ: usize = 5;
pub(crate) const CHANNEL: usize = 6;
pub(crate) const PD: usize = 7;
pub(crate) const ID: usize = 8;
/// Per kind.
const MOST: usize = 12;

pub(crate) struct World<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) rng: Rng,
    pub(crate) objects: [Vec<Object>; KINDS.len()],
    pub(crate) events: Object,
    /// With their queue pairs.
    pub(crate) attached: Vec<(Object, Gid)>,
}

impl<'a> World<'a> {
    pub(crate) fn new(shared: &'a Shared, rng: Rng) -> Self {
        // SAFETY: As C programs do.
        let events = unsafe {
            let create: unsafe extern "C" fn() -> Pointer =
                shared.library.function("rdma_create_event_channel");
            let channel = create();
            assert!(!channel.is_null());
            let descriptor: c_int = get("rdma_event_channel", channel, "fd");
            assert_eq!(libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK), 0);
            Object(channel)
        };
        Self { shared, rng, objects: Default::default(), events, attached: Vec::new() }
    }

    pub(crate) fn function<F>(&self, name: &str) -> F {
        // SAFETY: Callers name the type of C.
        unsafe { self.shared.library.function(name) }
    }

    /// Through the context.
    pub(crate) fn operation<F>(&self, name: &str) -> F {
        // SAFETY: Callers name the type of C.
        unsafe { operation(self.shared.context.0, name) }
    }

    pub(crate) fn any(&mut self, kind: usize) -> Option<Object> {
        self.rng.pick(&self.objects[kind])
    }

    /// Or the shared one.
    pub(crate) fn own_or(&mut self, kind: usize, shared: Object) -> Object {
        if self.rng.once_in(3) { shared } else { self.any(kind).unwrap_or(shared) }
    }

    /// A failed call has set `errno`.
    pub(crate) fn keep(&mut self, kind: usize, made: Pointer) -> bool {
        if made.is_null() {
            assert_ne!(std::io::Error::last_os_error().raw_os_error(), Some(0), "{}", KINDS[kind]);
            return false;
        }
        self.objects[kind].push(Object(made));
        true
    }

    pub(crate) fn has_room(&self, kind: usize) -> bool {
        self.objects[kind].len() < MOST
    }

    /// One unused object.
    pub(crate) fn destroy(&mut self) -> bool {
        let kind = self.rng.below(KINDS.len());
        if self.objects[kind].is_empty() {
            return false;
        }
        let index = self.rng.below(self.objects[kind].len());
        let object = self.objects[kind][index];
        if kind == ID {
            self.destroy_qp_of(object);
        }
        let result = destroyed(self.shared.library, KINDS[kind], object);
        if result == 0 {
            self.objects[kind].swap_remove(index);
        } else {
            assert!(matches!(result, libc::EBUSY | libc::EINVAL), "{}: {result}", KINDS[kind]);
        }
        result == 0
    }

    /// Dependents first.
    pub(crate) fn close(mut self) {
        self.drain_events();
        for (qp, group) in std::mem::take(&mut self.attached) {
            self.change_group("ibv_detach_mcast", qp, &group, 0);
        }
        for id in self.objects[ID].clone() {
            self.destroy_qp_of(id);
        }
        for kind in [ID, QP, SRQ, AH, MW, MR, CQ, CHANNEL, PD] {
            for object in std::mem::take(&mut self.objects[kind]) {
                let result = destroyed(self.shared.library, KINDS[kind], object);
                assert_eq!(result, 0, "{} at the end", KINDS[kind]);
            }
        }
        // SAFETY: Its identifiers are destroyed.
        unsafe {
            let destroy: unsafe extern "C" fn(Pointer) =
                self.function("rdma_destroy_event_channel");
            destroy(self.events.0);
        }
    }

    /// The caller sets pointers.
    pub(crate) fn noise(&mut self, name: &'static str) -> Structure {
        let mut structure = Structure::new(name);
        structure.fill(|| self.rng.next());
        structure
    }

    /// Mostly valid.
    pub(crate) fn rights(&mut self) -> c_int {
        let sensible = [
            0,
            mask(&["IBV_ACCESS_LOCAL_WRITE"]),
            mask(&["IBV_ACCESS_LOCAL_WRITE", "IBV_ACCESS_REMOTE_WRITE", "IBV_ACCESS_REMOTE_READ"]),
            mask(&["IBV_ACCESS_LOCAL_WRITE", "IBV_ACCESS_MW_BIND"]),
            self.rng.below(32) as c_int,
        ];
        let any = self.rng.next() as c_int;
        if self.rng.once_in(8) { any } else { self.rng.pick(&sensible).unwrap_or(0) }
    }

    pub(crate) fn part(&mut self) -> (u64, u32) {
        let offset = self.rng.below(ARENA);
        let length = match self.rng.below(4) {
            0 => 0,
            1 => self.rng.below(16),
            _ => self.rng.below(20_000),
        };
        (self.shared.start + offset as u64, length.min(ARENA - offset) as u32)
    }

    pub(crate) fn qp_type(&mut self) -> u32 {
        match self.rng.below(10) {
            0..=4 => constant("IBV_QPT_RC"),
            5 => constant("IBV_QPT_UC"),
            6 | 7 => constant("IBV_QPT_UD"),
            8 => self.rng.below(12) as u32,
            _ => self.rng.number(),
        }
    }
}
