//! Which library it is.

use std::{
    env,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use roce::environment;

use super::{carried, links::NAME, machine::Machine, trust};

/// The library: the one that is named, or `ROCE_LIBRARY`, or one beside this program or where a
/// package has it, or the one inside this program, unpacked.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    let variable = environment::value("ROCE_LIBRARY").map(PathBuf::from);
    if let Some(path) = named.map(Path::to_owned).or(variable) {
        return check(&path)
            .map_err(|problem| format!("the library {} {problem}; see --library", path.display()));
    }
    match env::current_exe() {
        Ok(own) => near(own.parent().unwrap_or(&own)),
        Err(error) => carried::unpacked().unwrap_or_else(|| {
            Err(format!("cannot tell where this program is: {error}; use --library"))
        }),
    }
}

fn near(place: &Path) -> Result<PathBuf, String> {
    let triplet = format!("../lib/{}-linux-gnu/roce", env::consts::ARCH);
    for directory in ["", "../lib/roce", &triplet, "../lib64/roce"] {
        let candidate = place.join(directory).join(NAME);
        match check(&candidate) {
            Err(problem) if fs::symlink_metadata(&candidate).is_ok() => {
                return Err(format!(
                    "the library {} {problem}; see --library",
                    candidate.display()
                ));
            }
            // beside a file that was downloaded may lie what somebody else has put there
            Ok(found) if !carried::exists() || trust::holds(&found) => return Ok(found),
            _ => {}
        }
    }
    carried::unpacked().unwrap_or_else(|| {
        let place = place.display();
        Err(format!(
            "there is no {NAME} in {place} or {place}/../lib/roce, and this roce was built without \
             one inside; `cargo build --release -p roce-abi` makes it, --library names it"
        ))
    })
}

/// The path without links, if it leads to a shared object.
pub(super) fn check(path: &Path) -> Result<PathBuf, String> {
    let mut magic = [0; 4];
    let mut read = || -> io::Result<PathBuf> {
        let path = fs::canonicalize(path)?;
        File::open(&path)?.read_exact(&mut magic)?;
        Ok(path)
    };
    let path = match read() {
        Ok(path) if magic == *b"\x7FELF" => path,
        Ok(_) => return Err("is no shared object".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err("is no shared object".to_owned());
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    match Machine::foreign(&path) {
        Some(machine) => Err(format!("is made for {machine}, and this roce is not")),
        None => Ok(path),
    }
}
