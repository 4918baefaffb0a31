//! rdma-core's headers and the C compiler.

use std::{
    collections::BTreeMap,
    env,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// One fact a line.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    #[allow(dead_code, reason = "not all who share this file need it")]
    pub(crate) version: &'static str,
    text: &'static str,
}

/// Oldest supported.
pub(crate) const OLDEST: Record =
    Record { version: "44.0", text: include_str!("../data/rdma-core-44.0.txt") };

/// Newest known.
pub(crate) const NEWEST: Record =
    Record { version: "65.0", text: include_str!("../data/rdma-core-65.0.txt") };

/// Sizes (`struct ibv_qp`), offsets (`member ibv_qp handle`) and constants (`constant IBV_QPT_RC`).
pub(crate) type Facts = BTreeMap<String, i64>;

pub(crate) fn facts(lines: &str) -> Facts {
    lines
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("symbol "))
        .map(|line| {
            let (fact, number) = line.rsplit_once(' ').unwrap();
            (fact.to_owned(), number.parse().unwrap())
        })
        .collect()
}

impl Record {
    pub(crate) fn facts(self) -> Facts {
        facts(self.text)
    }

    /// As `name@VERSION`.
    #[allow(dead_code, reason = "not all who share this file need it")]
    pub(crate) fn symbols(self) -> impl Iterator<Item = &'static str> {
        self.text.lines().filter_map(|line| line.strip_prefix("symbol "))
    }
}

/// `$CC`, or the first that runs.
pub(crate) fn compiler() -> Option<String> {
    env::var("CC").ok().into_iter().chain(["cc", "gcc", "clang"].map(String::from)).find(|name| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

pub(crate) fn has_headers(compiler: &str) -> bool {
    let mut preprocessor = Command::new(compiler)
        .args(["-E", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let source = b"#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n";
    preprocessor.stdin.take().unwrap().write_all(source).unwrap();
    preprocessor.wait().unwrap().success()
}

/// Removed on drop.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("roce-abi-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// By a C program.
pub(crate) fn print_facts(
    compiler: &str,
    options: &[&str],
    headers: &[&str],
    wanted: impl IntoIterator<Item = String>,
) -> String {
    let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    source.extend(headers.iter().map(|header| format!("#include <{header}>\n")));
    source += "int main(void) {\n";
    for fact in wanted {
        let words: Vec<&str> = fact.split(' ').collect();
        let value = match words[..] {
            ["struct", name] => format!("sizeof(struct {name})"),
            ["member", name, member] => format!("offsetof(struct {name}, {member})"),
            ["constant", name] => name.to_owned(),
            _ => panic!("{fact}"),
        };
        source += &format!("printf(\"{fact} %lld\\n\", (long long)({value}));\n");
    }
    source += "return 0;\n}\n";
    let directory = Directory::new();
    let (text, program) = (directory.file("facts.c"), directory.file("facts"));
    std::fs::write(&text, source).unwrap();
    let compiled =
        Command::new(compiler).args(options).arg("-o").arg(&program).arg(&text).status().unwrap();
    assert!(compiled.success(), "the headers {headers:?} lack something that is asked for");
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}
