//! Builds the C library for a release build of the tool, which carries it inside, so that one file
//! is all that `roce run` needs.
//!
//! Cargo cannot hand a shared object of one package to another, so it is called once more here,
//! with a target directory of its own. `ROCE_ABI_LIBRARY` in the environment names a library that
//! has been built already; empty, the tool carries none, which saves half of the time.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const VARIABLE: &str = "ROCE_ABI_LIBRARY";
/// What the library is made of, beside this package in a checkout.
const SOURCES: [&str; 13] = [
    "Cargo.toml",
    "Cargo.lock",
    "transport/Cargo.toml",
    "transport/src",
    "fabric/Cargo.toml",
    "fabric/src",
    "capture/Cargo.toml",
    "capture/src",
    "provider/Cargo.toml",
    "provider/src",
    "provider/abi/Cargo.toml",
    "provider/abi/src",
    "provider/abi/exports.map",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let library = match env::var_os(VARIABLE) {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(PathBuf::from(path)),
        None => is_wanted().then(build),
    };
    let carried = match library {
        Some(path) => {
            println!("cargo:rerun-if-changed={}", path.display());
            let path = fs::canonicalize(&path)
                .unwrap_or_else(|error| panic!("{VARIABLE}: {}: {error}", path.display()));
            format!("Some(include_bytes!({:?}))", path.to_str().expect("a path in UTF-8"))
        }
        None => "None".to_owned(),
    };
    fs::write(out().join("carried.rs"), carried).unwrap();
}

/// The library needs glibc, and only what is installed has to be in one file.
fn is_wanted() -> bool {
    let is = |name: &str, value: &str| env::var(name).as_deref() == Ok(value);
    is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
}

fn out() -> PathBuf {
    env::var_os("OUT_DIR").unwrap().into()
}

fn build() -> PathBuf {
    let target = env::var("TARGET").unwrap();
    let directory = out().join("library");
    let mut command = Command::new(env::var_os("CARGO").unwrap());
    command
        .args(["rustc", "--quiet", "--release", "--package", "roce-abi", "--crate-type", "cdylib"])
        .args(["--target", &target, "--config", "profile.release.strip=\"debuginfo\""])
        .arg("--manifest-path")
        .arg(manifest(&directory))
        .arg("--target-dir")
        .arg(&directory)
        // clippy's: what is built here is not what is looked at
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = command.status().expect("cargo starts");
    assert!(
        status.success(),
        "the C library, which the tool carries, cannot be built (see above); with {VARIABLE}= in \
         the environment the tool is built without"
    );
    directory.join(target).join("release/libroce_abi.so")
}

/// The workspace of a checkout, or a package that has the library as its dependency.
fn manifest(directory: &Path) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if workspace.join("provider/abi/exports.map").exists() {
        for source in SOURCES {
            println!("cargo:rerun-if-changed={}", workspace.join(source).display());
        }
        return workspace.join("Cargo.toml");
    }
    let version = env!("CARGO_PKG_VERSION");
    let package = format!(
        "[workspace]\n[package]\nname = \"roce-library\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\nroce-abi = \"={version}\"\n[profile.release]\nlto = \"fat\"\ncodegen-units = 1\n"
    );
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("lib.rs"), "").unwrap();
    fs::write(directory.join("Cargo.toml"), package).unwrap();
    directory.join("Cargo.toml")
}
