use std::{
    borrow::Cow,
    env,
    fs::{self, File},
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use roce::environment;

use super::{
    carried,
    links::{NAME, SOCKETS},
    machine::Machine,
    trust,
};

/// Order: named, `ROCE_LIBRARY`, beside this program, packages' places, unpacked.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    match file(named)? {
        Some(path) => Ok(path),
        None => carried::unpacked().unwrap_or_else(|| Err(none())),
    }
}

type Contents = Cow<'static, [u8]>;

/// The library, and the rsockets library if there is one.
pub(crate) fn contents() -> Result<(Contents, Option<Contents>), String> {
    let Some(path) = file(None)? else {
        let library = carried::CARRIED.ok_or_else(none)?;
        return Ok((library.into(), carried::CARRIED_SOCKETS.map(Cow::from)));
    };
    let library = fs::read(&path)
        .map_err(|error| format!("the library {} cannot be read: {error}", path.display()))?;
    Ok((library.into(), fs::read(path.with_file_name(SOCKETS)).ok().map(Cow::from)))
}

/// The rsockets library beside the library.
pub(crate) fn sockets(library: &Path) -> Result<PathBuf, String> {
    let path = library.with_file_name(SOCKETS);
    let found = check(&path).map_err(|problem| {
        format!(
            "--sockets: {} {problem}; `cargo build --release -p roce-preload` makes it, and \
             --library names the library beside it",
            path.display()
        )
    })?;
    // separators of the dynamic linker's lists
    if found.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
        return Err(format!(
            "--sockets: the path {} has a colon or a space, which LD_PRELOAD cannot express; move \
             it",
            found.display()
        ));
    }
    Ok(found)
}

fn file(named: Option<&Path>) -> Result<Option<PathBuf>, String> {
    let variable = environment::value("ROCE_LIBRARY").map(PathBuf::from);
    let checked = |path: &Path| {
        let refuse = |why| format!("the library {} {why}; see --library", path.display());
        check(path).map(Some).map_err(refuse)
    };
    if let Some(path) = named.map(Path::to_owned).or(variable) {
        return checked(&path);
    }
    // Without /proc this program's place is unknown.
    let Ok(own) = env::current_exe() else { return Ok(None) };
    let triplet = format!("../lib/{}-linux-gnu/roce", env::consts::ARCH);
    for directory in ["", "../lib/roce", &triplet, "../lib64/roce"] {
        let candidate = own.with_file_name(directory).join(NAME);
        // Anyone may have put a library beside a downloaded file.
        let own = || fs::canonicalize(&candidate).is_ok_and(|found| trust::holds(&found));
        if carried::CARRIED.is_some() && !own() {
            continue;
        }
        match checked(&candidate) {
            Err(_) if fs::symlink_metadata(&candidate).is_err() => {}
            found => return found,
        }
    }
    Ok(None)
}

fn none() -> String {
    let own = env::current_exe().unwrap_or_default();
    let place = own.parent().unwrap_or(&own).display();
    format!(
        "there is no {NAME} in {place} or {place}/../lib/roce, and this roce was built without one \
         inside; `cargo build --release -p roce-abi` makes it there, `cargo install --locked \
         --profile dist --path cli` builds a roce that carries it, --library names it"
    )
}

fn check(path: &Path) -> Result<PathBuf, String> {
    let mut magic = [0; 4];
    let mut read = || -> io::Result<PathBuf> {
        let path = fs::canonicalize(path)?;
        File::open(&path)?.read_exact(&mut magic)?;
        Ok(path)
    };
    let path = match read() {
        Ok(path) if magic == *b"\x7FELF" => path,
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(format!("cannot be read: {error}"));
        }
        _ => return Err("is not a shared object".to_owned()),
    };
    match Machine::foreign(&path) {
        Some(machine) => Err(format!("is for {machine}, unlike this roce")),
        None => Ok(path),
    }
}
