//! Loom's atomics; a test can weaken one kind of ordering.

use std::cell::Cell;

use loom::sync::atomic;
pub(crate) use loom::sync::atomic::Ordering;

/// Kind of ordering to leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Weakening {
    /// Unchanged code.
    #[default]
    None,
    /// No fences.
    Fences,
    /// Releases are relaxed.
    Release,
    /// Acquires are relaxed.
    Acquire,
    /// Sequentially consistent operations only acquire and release.
    Sequential,
}

thread_local! {
    // loom runs a model's threads on the test's thread
    static WEAKENING: Cell<Weakening> = const { Cell::new(Weakening::None) };
}

/// Runs a test without one kind of ordering.
pub fn weakened(weakening: Weakening, test: impl FnOnce()) {
    WEAKENING.set(weakening);
    test();
    WEAKENING.set(Weakening::None);
}

fn lacks(weakening: Weakening) -> bool {
    WEAKENING.get() == weakening
}

pub(crate) fn fence(order: Ordering) {
    if !lacks(Weakening::Fences) {
        atomic::fence(order);
    }
}

fn order(order: Ordering) -> Ordering {
    match order {
        Ordering::Release if lacks(Weakening::Release) => Ordering::Relaxed,
        Ordering::Acquire if lacks(Weakening::Acquire) => Ordering::Relaxed,
        Ordering::AcqRel if lacks(Weakening::Release) => Ordering::Acquire,
        Ordering::AcqRel if lacks(Weakening::Acquire) => Ordering::Release,
        order => order,
    }
}

/// Loom treats sequential consistency as acquire and release. Fences before loads and after stores,
/// which most compilers emit, correct that.
fn sequential(order: Ordering) {
    if order == Ordering::SeqCst && !lacks(Weakening::Sequential) {
        atomic::fence(Ordering::SeqCst);
    }
}

/// Makes loom try both orders of two accesses. Loom remembers an atomic's last access only: a
/// thread's own load hides another's from its store. This atomic keeps accesses visible.
#[derive(Debug, Default)]
struct Turn(atomic::AtomicBool);

impl Turn {
    fn take(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// For atomics that no thread both loads and stores.
#[derive(Debug, Default)]
struct NoTurn;

impl NoTurn {
    fn take(&self) {}
}

macro_rules! atomic {
    ($name:ident, $value:ty, $turn:ident) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(atomic::$name, $turn);

        #[allow(dead_code, reason = "not every type needs every operation")]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(atomic::$name::new(value), $turn::default())
            }

            pub(crate) fn load(&self, with: Ordering) -> $value {
                self.1.take();
                sequential(with);
                self.0.load(order(with))
            }

            pub(crate) fn store(&self, value: $value, with: Ordering) {
                self.1.take();
                self.0.store(value, order(with));
                sequential(with);
            }

            /// Stores nothing if the value is unchanged. Loom lets another thread's later store
            /// precede this one, and this thread would keep finding its own value.
            pub(crate) fn swap(&self, value: $value, with: Ordering) -> $value {
                self.1.take();
                let mut before = !value;
                while let Err(found) =
                    self.0.compare_exchange(before, value, order(with), Ordering::Relaxed)
                {
                    before = found;
                    if found == value {
                        break;
                    }
                }
                sequential(with);
                before
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let result = self.0.compare_exchange(current, new, order(success), order(failure));
                sequential(success);
                result
            }
        }
    };
    ($name:ident, $value:ty, $turn:ident, arithmetic) => {
        atomic!($name, $value, $turn);

        #[allow(dead_code, reason = "not every type needs every operation")]
        impl $name {
            pub(crate) fn fetch_max(&self, value: $value, with: Ordering) -> $value {
                self.1.take();
                let before = self.0.fetch_max(value, order(with));
                sequential(with);
                before
            }

            pub(crate) fn fetch_add(&self, value: $value, with: Ordering) -> $value {
                self.1.take();
                let before = self.0.fetch_add(value, order(with));
                sequential(with);
                before
            }

            pub(crate) fn fetch_sub(&self, value: $value, with: Ordering) -> $value {
                self.1.take();
                let before = self.0.fetch_sub(value, order(with));
                sequential(with);
                before
            }
        }
    };
}

atomic!(AtomicBool, bool, NoTurn);
atomic!(AtomicU8, u8, Turn, arithmetic);
atomic!(AtomicU16, u16, NoTurn, arithmetic);
atomic!(AtomicU32, u32, NoTurn, arithmetic);
atomic!(AtomicU64, u64, NoTurn, arithmetic);
atomic!(AtomicUsize, usize, Turn, arithmetic);
