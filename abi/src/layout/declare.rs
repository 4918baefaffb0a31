/// A function that is never called.
pub(crate) type Unused = Option<unsafe extern "C" fn()>;

#[cfg(test)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) members: &'static [(&'static str, usize)],
}

macro_rules! layouts {
    ($($(#[$attr:meta])* struct $name:ident { $($member:ident: $type:ty,)* })*) => {
        $(
            $(#[$attr])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $member: $type,)* }

            impl $name {
                /// Null pointers, no functions.
                pub(crate) const fn zeroed() -> Self {
                    // SAFETY: Zero is valid for numbers, raw pointers and `Option`s of functions.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        #[cfg(test)]
        pub(crate) const LAYOUTS: &[$crate::layout::declare::Layout] = &[
            $($crate::layout::declare::Layout {
                name: stringify!($name),
                size: std::mem::size_of::<$name>(),
                members: &[$((stringify!($member), std::mem::offset_of!($name, $member)),)*],
            },)*
        ];
    };
}
pub(crate) use layouts;
