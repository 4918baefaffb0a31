//! Gives the shared object its name and its symbols their versions.

fn main() {
    println!("cargo:rerun-if-changed=exports.map");
    let map = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("exports.map");
    for argument in [
        &format!("--version-script={}", map.display()),
        // librdmacm.so.1 is a link to the same file, which is loaded once
        "-soname,libibverbs.so.1",
        // threads of ours run its code for as long as the process lives
        "-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
