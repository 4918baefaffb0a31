//! Explanations of errors ([`Explain`]) and of failures in the [record](crate::trace)
//! ([`Histories`]).

/// Table of an error's variants: `errno`, cause, advice. `of` delegates to the inner error; `like`
/// borrows cause and advice.
#[doc(hidden)] // for the crates of this project
#[macro_export]
macro_rules! reasons {
    (
        $error:ty { $($variant:pat => $($errno:ident)? $cause:literal $advice:expr;)* }
        $(of { $($holder:pat => $held:expr;)* })?
        $(like { $($relative:pat => $model:expr;)* })?
    ) => {
        impl $crate::explain::Explain for $error {
            fn explain(&self) -> $crate::explain::Reason {
                match self {
                    $($variant => $crate::explain::Reason::new($cause, self, $advice)
                        $(.with_errno(stringify!($errno)))?,)*
                    $($($holder => $crate::explain::Explain::explain($held),)*)?
                    $($($relative => $crate::explain::Reason {
                        rule: alloc::format!("{self}"),
                        ..$crate::explain::Explain::explain($model)
                    },)*)?
                }
            }
        }
    };
}

mod call;
mod completion;
mod connection;
mod drop;
mod event;
mod finding;
mod history;
mod memory;

use alloc::{borrow::Cow, string::String};
use core::fmt;

pub use connection::SidrStatus;
pub use finding::{Finding, Histories, KEPT};

/// Number that a program's recorder gives a place of the program.
pub type Caller = u32;

/// Reason of a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// Stable name of the cause, snake case.
    pub cause: &'static str,
    /// `errno` of a failed call.
    pub errno: Option<&'static str>,
    /// Broken rule, or event.
    pub rule: String,
    /// Advice.
    pub advice: Cow<'static, str>,
}

impl Reason {
    /// Reason without `errno`.
    #[must_use]
    pub fn new(
        cause: &'static str,
        rule: &dyn fmt::Display,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { cause, errno: None, rule: alloc::format!("{rule}"), advice: advice.into() }
    }

    /// Adds an `errno`.
    #[must_use]
    pub fn with_errno(self, errno: &'static str) -> Self {
        Self { errno: Some(errno), ..self }
    }
}

/// An error with an explanation.
pub trait Explain {
    /// Explains the error.
    fn explain(&self) -> Reason;
}
