use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{
    Failure,
    build::{self, Built},
    contents::{Contents, PackageKind},
    deb, formula, metadata, rpm,
    sums::{self, SUMS},
    tarball, wheel,
};

/// Build tarballs, .deb, .rpm, a Python wheel, a formula, a list of components and checksums.
///
/// Nothing is uploaded. Packages run where glibc is as new as --glibc says, if `cargo-zigbuild` is
/// installed (pip install cargo-zigbuild ziglang); without it they need this host's.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Target to build for, repeatable; by default this host
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// The oldest glibc that the packages shall run with
    #[arg(long, default_value = "2.28")]
    glibc: String,
    /// Build with cargo alone, for the glibc of this host or of the target's compiler
    #[arg(long)]
    no_zig: bool,
    /// Where the packages go
    #[arg(long, value_name = "DIR", default_value = "target/packages")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask is in no workspace")?;
    // All files are summed: only this version's may be there.
    if fs::read_dir(&args.out).is_ok_and(|mut entries| entries.next().is_some()) {
        if !args.out.join(SUMS).exists() {
            return Err(format!("{} holds other files; see --out", args.out.display()).into());
        }
        fs::remove_dir_all(&args.out)?;
    }
    fs::create_dir_all(&args.out)?;
    let out = fs::canonicalize(&args.out)?;
    env::set_current_dir(root)?;
    let host = build::host()?;
    let targets = if args.target.is_empty() { vec![host.clone()] } else { args.target.clone() };
    let pages = build::pages(&out)?;
    let mut tarballs = Vec::new();
    for target in &targets {
        let zig = !args.no_zig && build::has_zig();
        let built =
            Built::new(target, (*target != host).then_some(target), zig.then_some(&args.glibc))?;
        let (major, minor) = built.glibc;
        if zig && built.glibc > parse(&args.glibc)? {
            return Err(format!("{target}: needs glibc {major}.{minor}, not {}", args.glibc).into());
        }
        println!("{target}: needs glibc {major}.{minor}");
        let components = metadata::components(target)?;
        let contents = Contents::new(&built, &pages, &components)?;
        let tarball = tarball::write(&out, &built, &contents.place(PackageKind::Tarball))?;
        tarballs.push((built.machine, tarball));
        deb::write(&out, &built, &contents)?;
        rpm::write(&out, &built, &contents)?;
        wheel::write(&out, &built, &contents)?;
        fs::write(
            out.join(format!("roce-{}-{}.cdx.json", build::VERSION, built.machine)),
            &contents.bill,
        )?;
    }
    formula::write(&out, &tarballs)?;
    fs::remove_dir_all(&pages)?;
    sums::write(&out)
}

fn parse(version: &str) -> Result<(u32, u32), Failure> {
    let parts = version
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.ok_or_else(|| format!("--glibc {version}: a version is such as 2.28").into())
}
