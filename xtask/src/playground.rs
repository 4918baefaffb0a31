use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use wasm_bindgen_cli_support::Bindgen;

use crate::{Failure, build::cargo};

const TARGET: &str = "wasm32-unknown-unknown";
/// Debian has standard library sources for its compiler.
const DEBIAN: &str = "/usr/bin";

/// Builds the page of the playground into target/playground/page.
///
/// Needs npm, and a Rust compiler with the standard library of wasm32-unknown-unknown, as
/// `rustup target add wasm32-unknown-unknown` has it, or Debian's cargo-web, rustc-web,
/// rust-web-src and lld.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the engine: the WebAssembly module and its JavaScript, in target/playground/engine
    #[arg(long)]
    engine: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if args.engine {
        return engine(&root);
    }
    println!("{}", build(&root)?.display());
    Ok(())
}

pub(crate) fn build(root: &Path) -> Result<PathBuf, Failure> {
    engine(root)?;
    let page = root.join("playground/page");
    if !has_modules(&page) {
        call(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&page))?;
    }
    call(Command::new("npm").args(["run", "--silent", "build"]).current_dir(&page))?;
    Ok(fs::canonicalize(root.join("target/playground/page"))?)
}

/// Newer than the lock file.
fn has_modules(page: &Path) -> bool {
    let written = |name: &str| fs::metadata(page.join(name)).and_then(|it| it.modified()).ok();
    written("node_modules/.package-lock.json") >= written("package-lock.json")
}

fn engine(root: &Path) -> Result<(), Failure> {
    let out = root.join("target/playground");
    bind(&module(root, &out)?, &out.join("engine"))
}

fn module(root: &Path, out: &Path) -> Result<PathBuf, Failure> {
    let directory = out.join("cargo");
    let mut command = compiler().ok_or_else(|| {
        format!(
            "no standard library for {TARGET}: rustup target add {TARGET}, or on Debian \
             apt-get install cargo-web rustc-web rust-web-src lld"
        )
    })?;
    let settings = ["opt-level=\"s\"", "debug=false", "strip=\"none\"", "panic=\"abort\""]
        .map(|setting| ["--config".to_owned(), format!("profile.release.{setting}")]);
    command
        .args(["build", "--quiet", "--release", "--lib", "--package", "roce-playground"])
        .args(["--target", TARGET])
        .args(settings.as_flattened())
        .arg("--target-dir")
        .arg(&directory)
        // set by the cargo that runs this program
        .env_remove("RUSTUP_TOOLCHAIN")
        .current_dir(root);
    call(&mut command)?;
    Ok(directory.join(TARGET).join("release/roce_playground.wasm"))
}

/// A cargo that has the target's standard library.
fn compiler() -> Option<Command> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    let has = output
        .is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir());
    if has {
        return Some(Command::new(cargo()));
    }
    let (cargo, rustc) = (Path::new(DEBIAN).join("cargo"), Path::new(DEBIAN).join("rustc"));
    let output = Command::new(&rustc).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let source = Path::new(&sysroot).join("lib/rustlib/src/rust/library/std");
    let mut command = Command::new(&cargo);
    command.env("RUSTC", rustc);
    // Debian's compiler has no linker for wasm.
    command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld");
    // allows -Z on a stable compiler
    command.env("RUSTC_BOOTSTRAP", "1");
    command.arg("-Zbuild-std=std,panic_abort");
    (source.is_dir() && cargo.exists()).then_some(command)
}

fn bind(module: &Path, out: &Path) -> Result<(), Failure> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name("engine").typescript(true);
    bindgen.omit_default_module_path(false).remove_name_section(true);
    bindgen.web(true).map_err(|error| error.to_string())?;
    bindgen.generate(out).map_err(|error| format!("wasm-bindgen: {error:#}"))?;
    Ok(())
}

pub(crate) fn call(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} has failed: {status}").into()) }
}
