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

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        Self::new(
            if matches!(error, ObjectError::TooMany { .. }) { "ENOMEM" } else { "EINVAL" },
            error,
        )
    }
}

impl From<ModifyError> for Failure {
    fn from(error: ModifyError) -> Self {
        Self::new("EINVAL", error)
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Self {
        Self::new("EINVAL", error)
    }
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Self {
        Self::new(if matches!(error, RegisterError::InUse) { "EBUSY" } else { "EINVAL" }, error)
    }
}

impl From<SrqError> for Failure {
    fn from(error: SrqError) -> Self {
        Self::new("EINVAL", error)
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::new(
            if matches!(error, AttachError::Join { .. }) { "ENODEV" } else { "EINVAL" },
            error,
        )
    }
}

impl From<MemoryFault> for Failure {
    fn from(_: MemoryFault) -> Self {
        Self::malformed("outside of the region")
    }
}
