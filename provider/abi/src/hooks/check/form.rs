//! Whether programs are checked, and how it is told.

use std::{fs::File, io::Write, path::PathBuf, process, sync::LazyLock};

use roce_provider::{CheckForm, Checks, environment, report};

use crate::hooks::switch::Hook;

/// What the environment asks for; `None`: nothing is checked. It is asked once. Words that are none
/// are said here, and again when the program looks for devices, of which it has none then.
pub(super) static ASKED: LazyLock<Option<Checks>> = LazyLock::new(|| {
    let mut checks = environment::checks().ok().flatten()?;
    if let Some(name) = &checks.file {
        let name = name.to_string_lossy().replace("%p", &process::id().to_string());
        checks.file = Some(std::path::absolute(&name).unwrap_or_else(|_| PathBuf::from(name)));
    }
    Some(checks)
});

/// True if programs are checked.
pub(crate) fn is_on() -> bool {
    Hook::Checks.is_on()
}

/// Has them checked from now on, if the environment asks for it.
pub(super) fn switch_on() -> bool {
    let is_asked = ASKED.is_some();
    if is_asked {
        Hook::Checks.switch_on();
    }
    is_asked
}

/// Form of what is told, if programs are checked.
pub(super) fn form() -> Option<CheckForm> {
    ASKED.as_ref().map(|checks| checks.form)
}

/// Says which seed it was, if nobody else did.
pub(super) fn tell_seed() {
    if let Some(checks) = ASKED.as_ref().filter(|checks| checks.are_late() && checks.seed.is_none())
    {
        let again = Checks { seed: Some(checks.seed()), ..checks.clone() };
        report::line(format_args!("{}={again} does the same again", environment::CHECK));
    }
}

/// Writes what is told to where it is asked for. A file is made anew by the first.
pub(super) fn write(text: &str, is_first: bool) {
    let Some(name) = ASKED.as_ref().and_then(|checks| checks.file.as_ref()) else {
        return report::write(text);
    };
    let opened =
        File::options().create(true).append(!is_first).truncate(is_first).write(true).open(name);
    if let Err(error) = opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        report::line(format_args!("{}: {}: {error}", environment::CHECK, name.display()));
        report::write(text);
    }
}
