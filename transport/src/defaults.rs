/// Struct with a default per field.
#[doc(hidden)] // for the crates of this project
#[macro_export]
macro_rules! defaults {
    ($(#[$meta:meta])* $vis:vis $type:ident {
        $($(#[$doc:meta])* $field:ident: $of:ty = $default:expr;)*
    }) => {
        $(#[$meta])*
        $vis struct $type { $($(#[$doc])* $vis $field: $of,)* }

        impl Default for $type {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

pub(crate) use defaults;
