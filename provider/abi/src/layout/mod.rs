//! The structures of the C interface. A test compares every size and every offset with what a C
//! compiler says of the installed headers.

#![allow(non_camel_case_types, reason = "names as in C")]
#![allow(dead_code, reason = "programs read what nothing here does")]
#![allow(non_snake_case, reason = "as above")]

pub(crate) mod cm;
pub(crate) mod consts;
pub(crate) mod kernel;
#[cfg(test)]
mod tests;
pub(crate) mod verbs;

/// A member for a function that nobody calls.
pub(crate) type Unused = Option<unsafe extern "C" fn()>;

/// A structure's size, and its members' places.
#[cfg(test)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) members: &'static [(&'static str, usize)],
}

/// Declares structures with the layout of C, and lists them for the test.
macro_rules! layouts {
    ($($(#[$attr:meta])* struct $name:ident { $($member:ident: $type:ty,)* })*) => {
        $(
            $(#[$attr])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $member: $type,)* }

            impl $name {
                /// All bytes zero: null pointers, no functions.
                pub(crate) const fn zeroed() -> Self {
                    // SAFETY: Every member is a number, a raw pointer, an `Option` of a function,
                    // or made of those: zero is a value of each.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        #[cfg(test)]
        pub(crate) const LAYOUTS: &[super::Layout] = &[$(super::Layout {
            name: stringify!($name),
            size: std::mem::size_of::<$name>(),
            members: &[$((stringify!($member), std::mem::offset_of!($name, $member)),)*],
        },)*];
    };
}
use layouts;
