//! Sets the shared object's name and symbol versions.
//!
//! The compiler's version script has no versions. lld and mold accept ours too; a script starts GNU
//! ld without the compiler's.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo:rerun-if-changed=exports.map");
    // read at run time: a build cache may hold another checkout's script
    let map = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("exports.map");
    let map = format!("--version-script={}", map.display());
    let linker = Path::new(&env::var_os("OUT_DIR").unwrap()).join("linker");
    start_gnu_ld_by_script(&linker, &map);
    // the C compiler looks there first for a linker
    println!("cargo:rustc-cdylib-link-arg=-B{}", linker.display());
    for argument in [
        &*map,
        // librdmacm.so.1 is a link, loaded once
        "-soname,libibverbs.so.1",
        // the library's threads run for the whole process
        "-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

/// Writes the script under GNU ld's names.
fn start_gnu_ld_by_script(directory: &Path, map: &str) {
    // cargo's C compiler; gcc knows how it was called
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
