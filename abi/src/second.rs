//! A second, bundled libibverbs finds no device here.

use std::{fs, path::Path, sync::Once};

use roce_provider::report;

use crate::hooks::check::mapped::range;

pub(crate) fn warn() {
    static ONCE: Once = Once::new();
    let own = warn as fn() as usize;
    if let Some(second) =
        fs::read_to_string("/proc/self/maps").ok().and_then(|maps| find(&maps, own))
    {
        ONCE.call_once(|| {
            report::line(format_args!(
                "{second} is loaded, too, and its users bypass roce; start the program with `roce \
                 run --also {}`",
                Path::new(&second).file_name().unwrap_or_default().display()
            ));
        });
    }
}

/// Finds a libibverbs not mapped at `own`.
fn find(maps: &str, own: usize) -> Option<String> {
    let own = maps.lines().find(|line| range(line).is_some_and(|range| range.contains(&own)));
    let own = own.and_then(path);
    let mut paths = maps.lines().filter_map(path).filter(|path| Some(*path) != own);
    let is_libibverbs = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let rest = name.strip_prefix("libibverbs");
        // a wheel's suffix; not pyverbs's libibverbs_enums
        rest.is_some_and(|rest| rest.starts_with(['.', '-']) && rest.contains(".so"))
    };
    paths.find(is_libibverbs).map(str::to_owned)
}

fn path(line: &str) -> Option<&str> {
    line.find('/').map(|start| &line[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_copy_is_found_and_the_own_one_is_not() {
        let own = "7f00000000-7f00001000 r-xp 00000000 08:01 7 /opt/my libs/libibverbs.so.1\n";
        let other = "7f00002000-7f00003000 r--p 00000000 08:01 8 /venv/n.libs/libibverbs-1d.so.1\n";
        let rest = "7f00004000-7f00005000 rw-p 00000000 00:00 0\n7f00006000-7f00007000 r--p 0 08:01 9 \
                    /usr/lib/libibverbs/libmlx5-rdmav34.so\n7f00008000-7f00009000 r--p 0 08:01 10 \
                    /pyverbs/libibverbs_enums.cpython-311-x86_64-linux-gnu.so\n";
        let found = |maps: &[&str]| find(&maps.concat(), 0x7f_0000_0123);
        assert_eq!(found(&[own, rest]), None);
        let path = Some("/venv/n.libs/libibverbs-1d.so.1".to_owned());
        assert_eq!((found(&[own, rest, other]), found(&[other, rest])), (path.clone(), path));
    }
}
