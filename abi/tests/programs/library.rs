//! The shared object by names, C structures by recorded offsets.

use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem,
    os::unix::ffi::OsStrExt,
    ptr::null_mut,
    slice,
    sync::LazyLock,
};

use crate::common::{self, Facts};

static FACTS: LazyLock<Facts> = LazyLock::new(|| common::NEWEST.facts());

unsafe extern "C" {
    fn dlvsym(library: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

type Pointer = *mut c_void;

#[derive(Clone, Copy)]
pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn load() -> Self {
        let path = env::current_exe().unwrap().with_file_name("libroce_abi.so");
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: A C string.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        Self(library)
    }

    /// `name@VERSION`; or null.
    pub(crate) fn find(self, symbol: &str) -> *mut c_void {
        let (name, version) = symbol.split_once('@').unwrap();
        let (name, version) = (CString::new(name).unwrap(), CString::new(version).unwrap());
        // SAFETY: A loaded library, and C strings.
        unsafe { dlvsym(self.0, name.as_ptr(), version.as_ptr()) }
    }

    /// In the newest recorded version.
    ///
    /// # Safety
    /// `F` is the function's pointer type.
    pub(crate) unsafe fn function<F>(self, name: &str) -> F {
        let newest = common::NEWEST
            .symbols()
            .filter(|symbol| symbol.split_once('@').unwrap().0 == name)
            .max()
            .unwrap_or_else(|| panic!("{name} is not recorded"));
        let found = self.find(newest);
        assert!(!found.is_null(), "no {newest}");
        // SAFETY: By the contract.
        unsafe { mem::transmute_copy(&found) }
    }

    /// Context, protection domain, completion queue, region on loopback.
    pub(crate) fn open(self, memory: *mut [u64], rights: c_int) -> [Pointer; 4] {
        // SAFETY: As C programs do.
        unsafe {
            let list: unsafe extern "C" fn(*mut c_int) -> *mut Pointer =
                self.function("ibv_get_device_list");
            let name: unsafe extern "C" fn(Pointer) -> *const c_char =
                self.function("ibv_get_device_name");
            let mut count = 0;
            let devices = list(&raw mut count);
            let device = slice::from_raw_parts(devices, count as usize)
                .iter()
                .copied()
                .find(|&device| CStr::from_ptr(name(device)) == c"roce_lo")
                .expect("a loopback device");
            let free: unsafe extern "C" fn(*mut Pointer) = self.function("ibv_free_device_list");
            free(devices);
            let one = |name, object| {
                let function: unsafe extern "C" fn(Pointer) -> Pointer = self.function(name);
                function(object)
            };
            let context = one("ibv_open_device", device);
            let pd = one("ibv_alloc_pd", context);
            let create_cq: unsafe extern "C" fn(
                Pointer,
                c_int,
                Pointer,
                Pointer,
                c_int,
            ) -> Pointer = self.function("ibv_create_cq");
            let cq = create_cq(context, 64, null_mut(), null_mut(), 0);
            let reg_mr: unsafe extern "C" fn(Pointer, Pointer, usize, c_int) -> Pointer =
                self.function("ibv_reg_mr");
            let mr = reg_mr(pd, memory.cast(), memory.len() * size_of::<u64>(), rights);
            assert!([pd, cq, mr].iter().all(|object| !object.is_null()));
            [context, pd, cq, mr]
        }
    }

    pub(crate) fn close(self, [context, pd, cq, mr]: [Pointer; 4]) {
        for (destroy, object) in [
            ("ibv_dereg_mr", mr),
            ("ibv_destroy_cq", cq),
            ("ibv_dealloc_pd", pd),
            ("ibv_close_device", context),
        ] {
            // SAFETY: A live object, and its destructor.
            let status = unsafe {
                let function: unsafe extern "C" fn(Pointer) -> c_int = self.function(destroy);
                function(object)
            };
            assert_eq!(status, 0, "{destroy}");
        }
    }
}

fn fact(name: &str) -> usize {
    let number = FACTS.get(name).unwrap_or_else(|| panic!("{name} is not recorded"));
    usize::try_from(*number).unwrap()
}

pub(crate) fn constant(name: &str) -> u32 {
    fact(&format!("constant {name}")) as u32
}

pub(crate) fn mask(names: &[&str]) -> c_int {
    names.iter().fold(0, |mask, name| mask | constant(name)) as c_int
}

/// Zeroed.
pub(crate) struct Structure {
    name: &'static str,
    words: Vec<u64>,
}

impl Structure {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, words: vec![0; fact(&format!("struct {name}")).div_ceil(8)] }
    }

    /// Or `inner.member`.
    pub(crate) fn set<T>(&mut self, member: &str, value: T) -> &mut Self {
        let offset = offset(self.name, member);
        assert!(offset + size_of::<T>() <= self.words.len() * 8, "{}.{member}", self.name);
        // SAFETY: The member lies inside.
        unsafe { self.pointer().byte_add(offset).cast::<T>().write_unaligned(value) };
        self
    }

    #[allow(dead_code, reason = "not all who share this file need it")]
    pub(crate) fn fill(&mut self, mut word: impl FnMut() -> u64) {
        self.words.fill_with(&mut word);
    }

    #[allow(dead_code, reason = "not all who share this file need it")]
    pub(crate) fn array(structures: Vec<Self>) -> Vec<u64> {
        structures.into_iter().flat_map(|structure| structure.words).collect()
    }

    pub(crate) fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    pub(crate) fn get<T: Copy>(&mut self, member: &str) -> T {
        // SAFETY: The structure is whole.
        unsafe { get(self.name, self.pointer(), member) }
    }
}

/// `inner: structure.member` is nested.
fn offset(name: &str, member: &str) -> usize {
    match member.split_once(": ") {
        None => fact(&format!("member {name} {member}")),
        Some((inner, rest)) => {
            let (inner_name, rest) = rest.split_once('.').unwrap();
            offset(name, inner) + offset(inner_name, rest)
        }
    }
}

/// # Safety
/// `pointer` is to this structure, whose member is a `T`.
pub(crate) unsafe fn get<T: Copy>(name: &str, pointer: *const c_void, member: &str) -> T {
    // SAFETY: By the contract.
    unsafe { pointer.byte_add(offset(name, member)).cast::<T>().read_unaligned() }
}

/// Of `ibv_context_ops`, or before it.
///
/// # Safety
/// The context is open, and `F` is the function's pointer type.
pub(crate) unsafe fn operation<F>(context: *const c_void, member: &str) -> F {
    let place = if FACTS.contains_key(&format!("member ibv_context_ops {member}")) {
        // SAFETY: The context is whole.
        unsafe {
            context.byte_add(offset("ibv_context", "ops") + offset("ibv_context_ops", member))
        }
    } else {
        let distance = offset("verbs_context", "context") - offset("verbs_context", member);
        // SAFETY: The context is the last member of the structure.
        unsafe { context.byte_sub(distance) }
    };
    // SAFETY: By the contract.
    unsafe { mem::transmute_copy(&*place.cast::<*const c_void>()) }
}
