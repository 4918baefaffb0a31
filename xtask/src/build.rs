use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::Failure;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) struct Built {
    pub(crate) target: String,
    pub(crate) machine: &'static str,
    pub(crate) tool: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) sockets: Vec<u8>,
    /// Oldest sufficient version.
    pub(crate) glibc: (u32, u32),
    /// Last commit in seconds since 1970, for reproducible packages; 0 outside of a checkout.
    pub(crate) time: u32,
}

impl Built {
    /// `cross`: the target to pass to cargo; the host's build shares existing artefacts.
    pub(crate) fn new(
        target: &str,
        cross: Option<&String>,
        zig: Option<&String>,
    ) -> Result<Self, Failure> {
        let machine = match target.split_once('-') {
            Some(("x86_64", "unknown-linux-gnu")) => "x86_64",
            Some(("aarch64", "unknown-linux-gnu")) => "aarch64",
            _ => return Err(format!("{target}: there are packages for x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu only").into()),
        };
        let mut command = Command::new(cargo());
        match (zig, cross) {
            (Some(glibc), _) => {
                command.args(["zigbuild", "--target", &format!("{target}.{glibc}")])
            }
            (None, Some(target)) => command.args(["build", "--target", target]),
            (None, None) => command.arg("build"),
        };
        command.args(["--profile", "dist", "--package", "roce-cli"]);
        command.args(["--message-format", "json-render-diagnostics"]);
        let (tool, out) = built(&run(&mut command)?)?;
        let tool = stripped(&tool, target)?;
        let library = stripped(&carried(&out, "carried.rs")?, target)?;
        let sockets = stripped(&carried(&out, "carried_sockets.rs")?, target)?;
        let glibc = glibc(&tool).max(glibc(&library)).max(glibc(&sockets));
        let target = target.to_owned();
        Ok(Self { target, machine, tool, library, sockets, glibc, time: time() })
    }
}

fn time() -> u32 {
    let output = Command::new("git").args(["log", "-1", "--format=%at"]).output();
    let time = output.ok().filter(|output| output.status.success());
    time.and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok()).unwrap_or(0)
}

fn carried(out: &Path, name: &str) -> Result<PathBuf, Failure> {
    let text = fs::read_to_string(out.join(name))?;
    let path = text
        .strip_prefix("Some(include_bytes!(\"")
        .and_then(|rest| rest.strip_suffix("\"))"))
        .ok_or("the tool does not carry both libraries; unset ROCE_ABI_LIBRARY")?;
    Ok(path.into())
}

pub(crate) fn cargo() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

pub(crate) fn host() -> Result<String, Failure> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = run(Command::new(rustc).arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc -vV names no host")?.to_owned())
}

pub(crate) fn has_zig() -> bool {
    let mut command = Command::new("cargo-zigbuild");
    let found = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("cargo-zigbuild is not installed: the packages need the glibc of this host");
    }
    found
}

/// Completions and man pages.
pub(crate) fn pages(out: &Path) -> Result<PathBuf, Failure> {
    let mut command = Command::new(cargo());
    command.args(["build", "--package", "roce-cli", "--message-format", "json-render-diagnostics"]);
    // build-std needs a named target
    command.env_remove("CARGO_UNSTABLE_BUILD_STD");
    let (tool, _) = built(&run(&mut command)?)?;
    let pages = out.join("pages");
    fs::create_dir_all(pages.join("completions"))?;
    run(Command::new(&tool).arg("manual").arg(pages.join("man")))?;
    for (shell, name) in [("bash", "roce"), ("zsh", "_roce"), ("fish", "roce.fish")] {
        let script = run(Command::new(&tool).args(["completions", shell]))?;
        fs::write(pages.join("completions").join(name), script)?;
    }
    Ok(pages)
}

fn built(messages: &str) -> Result<(PathBuf, PathBuf), Failure> {
    let (mut tool, mut out) = (None, None);
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let package = message["package_id"].as_str().unwrap_or_default();
        if !package.contains("roce-cli") && !package.contains("/cli#") {
            continue;
        }
        if let Some(executable) = message["executable"].as_str() {
            tool = Some(executable.into());
        }
        if let Some(directory) = message["out_dir"].as_str() {
            out = Some(directory.into());
        }
    }
    tool.zip(out).ok_or_else(|| "cargo names no tool".into())
}

pub(crate) fn run(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot start {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed, see above").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn stripped(path: &Path, target: &str) -> Result<Vec<u8>, Failure> {
    let machine = target.split('-').next().unwrap_or_default();
    let own = machine == env::consts::ARCH;
    let name = if own { "strip".to_owned() } else { format!("{machine}-linux-gnu-strip") };
    let copy = path.with_extension("stripped");
    let strip = env::var_os("STRIP").unwrap_or_else(|| name.into());
    run(Command::new(strip).args(["--strip-debug", "-o"]).arg(&copy).arg(path))?;
    Ok(fs::read(copy)?)
}

/// Newest glibc version named by an ELF file.
fn glibc(file: &[u8]) -> (u32, u32) {
    const PREFIX: &[u8] = b"\0GLIBC_2.";
    let names = file.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let minors = names.filter_map(|(at, _)| {
        let name = file[at + PREFIX.len()..].split(|byte| *byte == 0).next()?;
        std::str::from_utf8(name).ok()?.split('.').next()?.parse().ok()
    });
    (2, minors.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        let names = b"x\0GLIBC_2.9\0GLIBC_2.17\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_2.100x\0";
        assert_eq!(glibc(names), (2, 17));
        assert_eq!(glibc(b""), (2, 0));
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        assert!((2, 2) < glibc(&own), "{:?}", glibc(&own));
    }
}
