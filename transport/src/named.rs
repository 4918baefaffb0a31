//! Enums of variants with texts.

macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident $name:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, derive_more::Display)]
        pub enum $type {
            $(#[doc = concat!("`", $name, "`\n")] $(#[$doc])* #[display($name)] $variant,)*
        }
    };
}

/// Errors whose messages are also the documentation.
macro_rules! errors {
    ($(#[$meta:meta])* $type:ident {
        $($(#[$attribute:meta])* $variant:ident
            $(($($of:tt)*))? $({ $($field:ident: $value:ty),* })? $($message:literal)?;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
        #[allow(missing_docs, reason = "messages name the fields")]
        pub enum $type {
            $(
                $(#[doc = concat!("`", $message, "`\n")] #[error($message)])?
                $(#[$attribute])*
                $variant $(($($of)*))? $({ $($field: $value),* })?,
            )*
        }
    };
}

pub(crate) use {errors, named};
