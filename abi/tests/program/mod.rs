//! C programs with this build's libraries.

use std::{
    env,
    ffi::OsStr,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{common::Directory, watchdog};

/// Per program.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// In a directory with links to the libraries.
pub(crate) struct Program {
    directory: Directory,
    name: String,
    options: Vec<String>,
}

impl Program {
    /// Links with the library unless the program `loads` it.
    pub(crate) fn compile(compiler: &str, options: &[String], file: &Path, loads: bool) -> Self {
        let name = file.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        watchdog::start(String::new);
        let library = env::current_exe().unwrap().with_file_name("libroce_abi.so");
        let directory = Directory::new();
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            symlink(&library, directory.file(name)).unwrap();
        }
        let mut compile = Command::new(compiler);
        compile
            .args(["-Wall", "-Werror", "-pthread", "-g"])
            .args(options)
            .arg("-o")
            .arg(directory.file(name))
            .arg(file);
        if !loads {
            // other libraries' symbols do not matter
            compile.arg("-Wl,--unresolved-symbols=ignore-in-shared-libs");
            compile.arg(directory.file("libibverbs.so.1"));
        }
        assert!(compile.status().unwrap().success(), "{name} does not compile with {options:?}");
        Self { directory, name: name.to_owned(), options: options.to_vec() }
    }

    /// Expects `status`.
    pub(crate) fn run(&self, variables: &[(&str, &str)], status: i32) -> Output {
        self.run_by(Command::new(self.directory.file(&self.name)), variables, status)
    }

    /// With a broken stderr pipe and `SIGPIPE` ignored.
    pub(crate) fn run_unheard(&self, variables: &[(&str, &str)]) {
        let mut command = Command::new("sh");
        let script =
            "mkfifo \"$1\"; exec 3<>\"$1\" 2>\"$1\" 3<&-; rm \"$1\"; trap '' PIPE; exec \"$0\"";
        command.args(["-c", script]);
        command.args([self.directory.file(&self.name), self.directory.file("unheard")]);
        self.run_by(command, variables, 0);
    }

    pub(crate) fn run_in_namespace(&self, setup: &str, variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new("unshare");
        let script = format!("set -e\n{setup}\nexec \"$0\"");
        command.args(["--map-root-user", "--net", "--mount", "sh", "-c", &script]);
        command.arg(self.directory.file(&self.name));
        self.run_by(command, variables, 0)
    }

    fn run_by(&self, mut command: Command, variables: &[(&str, &str)], status: i32) -> Output {
        let Self { directory, name, options } = self;
        let running = command
            .env("LD_LIBRARY_PATH", directory.file(""))
            .env("XDG_RUNTIME_DIR", directory.file(""))
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let done = watchdog::programs::wait_with_output(running, LIMIT);
        assert!(
            done.status.code() == Some(status),
            "{name}, compiled with {options:?}, {variables:?}: {}\n{}",
            done.status,
            last_lines(&done.stderr)
        );
        Output { stderr: String::from_utf8_lossy(&done.stderr).into_owned() }
    }
}

pub(crate) struct Output {
    pub(crate) stderr: String,
}

fn last_lines(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
