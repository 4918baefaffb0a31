//! Gives the shared object its name and its symbols their versions.
//!
//! The compiler hands the linker a version script of its own, without versions. lld and mold take
//! ours in addition; GNU ld takes one of this kind or the other, and so is started by a script that
//! leaves the compiler's out.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo:rerun-if-changed=exports.map");
    // when it runs: a cache of compilations may have the build script of another checkout
    let map = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("exports.map");
    let map = format!("--version-script={}", map.display());
    let linker = Path::new(&env::var_os("OUT_DIR").unwrap()).join("linker");
    start_gnu_ld_by_script(&linker, &map);
    // the C compiler that links looks for its linker there first
    println!("cargo:rustc-cdylib-link-arg=-B{}", linker.display());
    for argument in [
        &*map,
        // librdmacm.so.1 is a link to the same file, which is loaded once
        "-soname,libibverbs.so.1",
        // threads of ours run its code for as long as the process lives
        "-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

/// Writes the script by the names under which C compilers look for GNU ld.
fn start_gnu_ld_by_script(directory: &Path, map: &str) {
    // the C compiler as cargo knows it; gcc says itself how it was called
    let compiler = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".into());
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let script = include_str!("linker.sh")
        .replace("@MAP@", &quoted(map))
        .replace("@COMPILER@", &quoted(&compiler));
    fs::create_dir_all(directory).unwrap();
    for name in ["ld", "ld.bfd"] {
        let path = directory.join(name);
        fs::write(&path, &script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
