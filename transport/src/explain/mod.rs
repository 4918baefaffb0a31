//! Explanations of failed calls, completions in error, events and rejections: the broken rule and
//! what to look at. The [record](crate::trace) of a queue pair adds what came before and what the
//! peer said.
//!
//! [`Explain`] is for what is known at once. [`Histories`] reads an adapter's record and says with
//! each [`Finding`] what has failed. Nothing here changes what an adapter does, or writes anything.

/// The table of an error: each variant with its `errno`, if calls fail with it, the name of its
/// cause, and advice. A variant's message is its rule. Those that hold another error are explained
/// by it; those that are like another have its cause and advice.
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
mod refusal;

use alloc::{borrow::Cow, string::String};
use core::fmt;

pub use connection::SidrStatus;
pub use finding::{Finding, Histories, KEPT};

/// Reason of a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// Name of the cause for programs: lower case, words joined by underscores. It does not change.
    pub cause: &'static str,
    /// The error's name in `errno.h`, of a call that has failed.
    pub errno: Option<&'static str>,
    /// The rule that was broken, or what has happened.
    pub rule: String,
    /// Places to look at, and what to do there.
    pub advice: Cow<'static, str>,
}

impl Reason {
    /// A reason without an `errno`; `rule` is what prints as the rule.
    #[must_use]
    pub fn new(
        cause: &'static str,
        rule: &dyn fmt::Display,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { cause, errno: None, rule: alloc::format!("{rule}"), advice: advice.into() }
    }

    /// The same with the name of an `errno`.
    #[must_use]
    pub fn with_errno(self, errno: &'static str) -> Self {
        Self { errno: Some(errno), ..self }
    }
}

/// Something with an explanation.
pub trait Explain {
    /// Its explanation.
    fn explain(&self) -> Reason;
}
