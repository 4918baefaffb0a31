//! Builds the C library and the rsockets preload library into an installed tool, so `roce run`
//! needs one file. In a checkout that is the profile `dist`; in its other profiles the tool takes
//! the libraries that lie beside it.
//!
//! Cargo cannot hand a shared object of one package to another, so it is called once more for each
//! here, with a target directory of its own. `ROCE_ABI_LIBRARY` in the environment names a library
//! that has been built already, and beside it may lie `librspreload.so`; empty, the tool carries
//! none.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const VARIABLE: &str = "ROCE_ABI_LIBRARY";
const LIBRARY: &str = "libroce_abi.so";
const SOCKETS: &str = "librspreload.so";
/// The sources of the libraries, beside this package in a checkout.
const SOURCES: [&str; 15] = [
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
    "abi/Cargo.toml",
    "abi/src",
    "abi/exports.map",
    "preload/Cargo.toml",
    "preload/src",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let (library, sockets) = match env::var_os(VARIABLE) {
        Some(path) if path.is_empty() => (None, None),
        Some(path) => {
            let library = PathBuf::from(path);
            let sockets = library.with_file_name(SOCKETS);
            println!("cargo:rerun-if-changed={}", sockets.display());
            (Some(library), sockets.exists().then_some(sockets))
        }
        None if is_wanted() => {
            let directory = out().join("library");
            let manifest = manifest(&directory);
            (
                Some(build(&manifest, &directory, "roce-abi", LIBRARY)),
                Some(build(&manifest, &directory, "roce-preload", SOCKETS)),
            )
        }
        None => (None, None),
    };
    carry("carried.rs", library);
    carry("carried_sockets.rs", sockets);
}

/// Writes what the tool includes.
fn carry(name: &str, library: Option<PathBuf>) {
    let carried = match library {
        Some(path) => {
            println!("cargo:rerun-if-changed={}", path.display());
            let path = fs::canonicalize(&path)
                .unwrap_or_else(|error| panic!("{VARIABLE}: {}: {error}", path.display()));
            format!("Some(include_bytes!({:?}))", path.to_str().expect("a path in UTF-8"))
        }
        None => "None".to_owned(),
    };
    fs::write(out().join(name), carried).unwrap();
}

/// The libraries need glibc, and only what is installed has to be in one file.
fn is_wanted() -> bool {
    let is = |name: &str, value: &str| env::var(name).as_deref() == Ok(value);
    let is_installed = if workspace().is_some() { is_dist() } else { is("PROFILE", "release") };
    is_installed && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu")
}

/// True in the profile `dist`. `PROFILE` has the name of the profile that it inherits from; only
/// the path of what is built, `…/dist/build/roce-cli-…/out`, has its own.
fn is_dist() -> bool {
    out().ancestors().skip(3).take(2).any(|directory| directory.ends_with("dist"))
}

fn out() -> PathBuf {
    env::var_os("OUT_DIR").unwrap().into()
}

fn build(manifest: &Path, directory: &Path, package: &str, file: &str) -> PathBuf {
    let target = env::var("TARGET").unwrap();
    let profile = if is_dist() { "dist" } else { "release" };
    let mut command = Command::new(env::var_os("CARGO").unwrap());
    command
        .args([
            "rustc",
            "--quiet",
            "--profile",
            profile,
            "--package",
            package,
            "--crate-type",
            "cdylib",
        ])
        .args(["--target", &target, "--config"])
        .arg(format!("profile.{profile}.strip=\"debuginfo\""))
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(directory)
        // clippy's: what is built here is not what is looked at
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = command.status().expect("cargo starts");
    assert!(
        status.success(),
        "{file}, which the tool carries, cannot be built (see above); with {VARIABLE}= in the \
         environment the tool is built without"
    );
    directory.join(target).join(profile).join(file)
}

/// The workspace of a checkout.
fn workspace() -> Option<PathBuf> {
    // when it runs: a cache of compilations may have the build script of another checkout
    let workspace = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    workspace.join("abi/exports.map").exists().then_some(workspace)
}

/// The workspace of a checkout, or a package that has the libraries as its dependencies.
fn manifest(directory: &Path) -> PathBuf {
    if let Some(workspace) = workspace() {
        for source in SOURCES {
            println!("cargo:rerun-if-changed={}", workspace.join(source).display());
        }
        return workspace.join("Cargo.toml");
    }
    let version = env!("CARGO_PKG_VERSION");
    let package = format!(
        "[workspace]\n[package]\nname = \"roce-library\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\nroce-abi = \"={version}\"\nroce-preload = \"={version}\"\n[profile.release]\nlto = \"fat\"\ncodegen-units = 1\n"
    );
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("lib.rs"), "").unwrap();
    fs::write(directory.join("Cargo.toml"), package).unwrap();
    directory.join("Cargo.toml")
}
