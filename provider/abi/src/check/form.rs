//! Whether programs are checked, and how it is told.

use std::sync::LazyLock;

use roce_provider::environment::{self, CHECK};

/// Form of what is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Text,
    Json,
}

/// The form that the environment asks for; `None`: nothing is checked. It is asked once.
pub(super) static FORM: LazyLock<Option<Form>> = LazyLock::new(|| {
    let value = environment::value(CHECK).filter(|value| value != "0")?;
    Some(if value == "json" { Form::Json } else { Form::Text })
});

/// True if programs are checked.
pub(crate) fn is_on() -> bool {
    FORM.is_some()
}
