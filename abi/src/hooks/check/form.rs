use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    process,
    sync::LazyLock,
};

use roce_provider::{CheckForm, Checks, environment, report};

use rustix::fs::{FlockOperation, flock};

use super::sarif;
use crate::hooks::switch::Hook;

/// Reports invalid words, as does device lookup, which then finds no device.
pub(super) static ASKED: LazyLock<Option<Checks>> = LazyLock::new(|| {
    let mut checks = environment::checks().ok().flatten()?;
    if let Some(name) = &checks.file {
        let name = name.to_string_lossy().replace("%p", &process::id().to_string());
        checks.file = Some(std::path::absolute(&name).unwrap_or_else(|_| PathBuf::from(name)));
    }
    Some(checks)
});

pub(crate) fn is_on() -> bool {
    Hook::Checks.is_on()
}

pub(super) fn form() -> Option<CheckForm> {
    ASKED.as_ref().map(|checks| checks.form)
}

pub(super) fn report_seed() {
    if let Some(checks) = ASKED.as_ref().filter(|checks| checks.are_late() && checks.seed.is_none())
    {
        let again = Checks { seed: Some(checks.seed()), ..checks.clone() };
        report::line(format_args!("{}={again} repeats this run", environment::CHECK));
    }
}

pub(super) fn write(text: &str) {
    let Some((form, name)) =
        ASKED.as_ref().and_then(|checks| Some((checks.form, checks.file.as_ref()?)))
    else {
        return report::write(text);
    };
    if let Err(error) = add(name, form, text) {
        report::line(format_args!("{}: {}: {error}", environment::CHECK, name.display()));
        report::write(text);
    }
}

/// Appends to the output of other processes.
fn add(name: &Path, form: CheckForm, text: &str) -> io::Result<()> {
    if form != CheckForm::Sarif {
        return File::options().create(true).append(true).open(name)?.write_all(text.as_bytes());
    }
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).open(name)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let mut before = String::new();
    file.read_to_string(&mut before)?;
    let whole = sarif::joined(&before, text)?;
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(whole.as_bytes())
}
