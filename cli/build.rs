//! Embeds the C library and the rsockets library in an installed tool, so `roce run` is one file.
//! In a checkout only the profile `dist` embeds them.
//!
//! Cargo cannot pass another package's shared object: a second cargo with its own target directory
//! builds each. `ROCE_ABI_LIBRARY` names a built one instead, perhaps beside `librspreload.so`;
//! empty: none.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const VARIABLE: &str = "ROCE_ABI_LIBRARY";
const LIBRARY: &str = "libroce_abi.so";
const SOCKETS: &str = "librspreload.so";
const CRATES: [&str; 8] =
    ["transport", "fabric", "capture", "ethernet", "provider", "rsocket", "abi", "preload"];

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

/// The libraries need glibc; only an installed tool must be a single file.
fn is_wanted() -> bool {
    let is = |name: &str, value: &str| env::var(name).as_deref() == Ok(value);
    let is_installed = if workspace().is_some() { is_dist() } else { is("PROFILE", "release") };
    is_installed && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu")
}

/// The profile's name is only in the path: `…/dist/build/roce-cli-…/out`.
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
        .args(["rustc", "--quiet", "--profile", profile, "--package", package])
        .args(["--crate-type", "cdylib", "--target", &target, "--config"])
        .arg(format!("profile.{profile}.strip=\"debuginfo\""))
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(directory)
        // clippy's wrapper
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = command.status().expect("cargo starts");
    assert!(
        status.success(),
        "cannot build {file}, which the tool embeds (see above); set {VARIABLE}= to build the tool \
         without it"
    );
    directory.join(target).join(profile).join(file)
}

fn workspace() -> Option<PathBuf> {
    // At run time: a compilation cache may hold another checkout's build script.
    let workspace = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    workspace.join("abi/exports.map").exists().then_some(workspace)
}

fn manifest(directory: &Path) -> PathBuf {
    if let Some(workspace) = workspace() {
        let sources = CRATES.map(|name| [format!("{name}/Cargo.toml"), format!("{name}/src")]);
        let others = ["Cargo.toml", "Cargo.lock", "abi/exports.map"].map(str::to_owned);
        for source in sources.as_flattened().iter().chain(&others) {
            println!("cargo:rerun-if-changed={}", workspace.join(source).display());
        }
        return workspace.join("Cargo.toml");
    }
    let version = env!("CARGO_PKG_VERSION");
    let package = format!(
        "[workspace]\n[package]\nname = \"roce-library\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\nroce-abi = \"={version}\"\nroce-preload = \"={version}\"\n[profile.release]\nlto = \"thin\"\ncodegen-units = 1\n"
    );
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("lib.rs"), "").unwrap();
    fs::write(directory.join("Cargo.toml"), package).unwrap();
    directory.join("Cargo.toml")
}
