//! Sets the shared object's soname and symbol versions.
//!
//! rustc's version script has no versions. lld and mold accept a second script; for GNU ld, a
//! wrapper drops rustc's.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo:rerun-if-changed=exports.map");
    // at run time: a build cache may hold another checkout's path
    let map = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("exports.map");
    let map = format!("--version-script={}", map.display());
    let linker = Path::new(&env::var_os("OUT_DIR").unwrap()).join("linker");
    start_gnu_ld_by_script(&linker, &map);
    // the C compiler's first search path for ld
    println!("cargo:rustc-cdylib-link-arg=-B{}", linker.display());
    for argument in [
        &*map,
        // librdmacm.so.1 is a symlink, loaded once
        "-soname,libibverbs.so.1",
        // the library's threads outlive dlclose
        "-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

fn start_gnu_ld_by_script(directory: &Path, map: &str) {
    // cargo's C compiler
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
