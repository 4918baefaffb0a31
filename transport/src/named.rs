//! Enums of named variants.

macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident $name:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, derive_more::Display)]
        pub enum $type { $($(#[$doc])* #[display($name)] $variant,)* }
    };
}

pub(crate) use named;
