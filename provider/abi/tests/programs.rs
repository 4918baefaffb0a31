//! C programs, compiled with the installed headers of libibverbs and run with this library in its
//! place.

use std::{env, fs, os::unix::fs::symlink, path::Path, process::Command};

/// Compiles a program beside this file, links it with the library, and runs it.
fn run(name: &str) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let library = env::current_exe().unwrap().with_file_name("libroce_abi.so");
    let stage = env::temp_dir().join(format!("roce-abi-{name}-{}", std::process::id()));
    fs::create_dir_all(&stage).unwrap();
    symlink(&library, stage.join("libibverbs.so.1")).unwrap();
    let program = stage.join(name);
    let mut compiler = Command::new("cc");
    compiler
        .args(["-Wall", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(sources.join(format!("{name}.c")));
    // what it does not define itself of what others define is not the program's matter
    compiler
        .arg("-Wl,--unresolved-symbols=ignore-in-shared-libs")
        .arg(stage.join("libibverbs.so.1"));
    assert!(
        compiler.status().expect("a C compiler").success(),
        "the headers are needed: libibverbs-dev"
    );
    let done = Command::new("timeout")
        .arg("60")
        .arg(&program)
        .env("LD_LIBRARY_PATH", &stage)
        .output()
        .unwrap();
    fs::remove_dir_all(&stage).unwrap();
    assert!(
        done.status.success(),
        "{name}: {}\n{}",
        done.status,
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn queue_pairs() {
    run("queue_pairs");
}
