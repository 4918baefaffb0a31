//! Enums of named variants.

macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident $name:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type { $($(#[$doc])* $variant,)* }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $name,)* })
            }
        }
    };
}

pub(crate) use named;
