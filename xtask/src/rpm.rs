use std::path::Path;

use rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder};

use crate::{
    Failure,
    build::{Built, VERSION},
    contents::{
        Contents, DESCRIPTION, Entry, HOMEPAGE, MAINTAINER, PackageKind, SUMMARY,
        VERBS_DESCRIPTION, VERBS_SUMMARY, What, script, wrapped,
    },
};

const RELEASE: &str = "1";

pub(crate) fn write(out: &Path, built: &Built, contents: &Contents<'_>) -> Result<(), Failure> {
    let mut tool = builder("roce", built, SUMMARY, DESCRIPTION);
    add(&mut tool, contents.place(PackageKind::Rpm))?;
    save(out, built, "roce", &mut tool)?;

    let mut verbs = builder("roce-verbs", built, VERBS_SUMMARY, VERBS_DESCRIPTION);
    let libraries = contents.libraries(PackageKind::Rpm);
    verbs
        .requires(Dependency::script_post("/usr/sbin/update-alternatives"))
        .requires(Dependency::script_preun("/usr/sbin/update-alternatives"))
        .requires(Dependency::script_post("/sbin/ldconfig"))
        .requires(Dependency::script_preun("/sbin/ldconfig"))
        .post_install_script(script(include_str!("../../packaging/verbs/postinst"), &libraries))
        .pre_uninstall_script(script(include_str!("../../packaging/verbs/prerm"), &libraries));
    add(&mut verbs, contents.verbs(PackageKind::Rpm)?)?;
    save(out, built, "roce-verbs", &mut verbs)
}

fn builder(name: &str, built: &Built, summary: &str, description: &str) -> PackageBuilder {
    let mut builder =
        PackageBuilder::new(name, VERSION, "MIT OR Apache-2.0", built.machine, summary);
    let (major, minor) = built.glibc;
    // RHEL 8's rpm reads v4; the source date makes packages reproducible.
    builder
        .using_config(
            BuildConfig::v4().compression(CompressionWithLevel::Gzip(9)).source_date(built.time),
        )
        .release(RELEASE)
        .description(wrapped(description).join("\n"))
        .url(HOMEPAGE)
        .packager(MAINTAINER)
        .build_host("localhost")
        // rpm's name of a glibc version
        .requires(Dependency::any(format!("libc.so.6(GLIBC_{major}.{minor})(64bit)")));
    builder
}

fn add(builder: &mut PackageBuilder, entries: Vec<Entry>) -> Result<(), Failure> {
    for Entry { path, what } in entries {
        let path = format!("/{path}");
        match what {
            What::File(bytes) => {
                let options = FileOptions::new(&path).permissions(0o644);
                let options = match path.as_str() {
                    path if path.contains("/LICENSE") => options.license(),
                    path if path.contains("/doc/") || path.contains("/man/") => options.doc(),
                    _ => options,
                };
                builder.with_file_contents(bytes, options)?
            }
            What::Program(bytes) | What::Library(bytes) => {
                builder.with_file_contents(bytes, FileOptions::new(path).permissions(0o755))?
            }
            What::Link(target) => builder.with_symlink(FileOptions::symlink(path, target))?,
        };
    }
    Ok(())
}

fn save(
    out: &Path,
    built: &Built,
    name: &str,
    builder: &mut PackageBuilder,
) -> Result<(), Failure> {
    let path = out.join(format!("{name}-{VERSION}-{RELEASE}.{}.rpm", built.machine));
    Ok(builder.build()?.write_file(path)?)
}
