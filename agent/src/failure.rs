use std::fmt::Display;

use roce::{
    AttachError, MemoryFault, ModifyError, ObjectError, RegionError, RegisterError, SrqError,
};
use serde_json::{Value, json};

pub(crate) struct Failure {
    errno: &'static str,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: &'static str, text: impl Display) -> Self {
        Self { errno, text: text.to_string() }
    }

    pub(crate) fn malformed(text: impl Display) -> Self {
        Self::new("EPROTO", text)
    }

    pub(crate) fn into_json(self) -> Value {
        json!({"error": self.errno, "text": self.text})
    }
}

/// `EINVAL`, except for the named errors.
macro_rules! from {
    ($($error:ident $(except $other:pat => $errno:literal)?;)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                $(if matches!(error, $other) {
                    return Self::new($errno, error);
                })?
                Self::new("EINVAL", error)
            }
        }
    )*};
}

from! {
    ObjectError except ObjectError::TooMany { .. } => "ENOMEM";
    ModifyError;
    RegionError;
    RegisterError except RegisterError::InUse => "EBUSY";
    SrqError;
    AttachError except AttachError::Join { .. } => "ENODEV";
}

impl From<MemoryFault> for Failure {
    fn from(_: MemoryFault) -> Self {
        Self::malformed("outside of the region")
    }
}
