//! Symbols against rdma-core's, and their page.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::c_int,
    fs, mem,
    path::{Path, PathBuf},
};

use super::{
    common::{self, Record},
    library::Library,
};

/// With their first release.
const HISTORY: &str = include_str!("../data/symbols.txt");

/// Driver registration before rdma-core 25.
const LEFT_OUT: &str = "ibv_register_driver@IBVERBS_1.1";

/// Those for drivers refuse too.
const REFUSED: &str = "
    ibv_alloc_dmah ibv_dealloc_dmah ibv_dm_export_dmabuf_fd ibv_export_buf_dmabuf_fd
";

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    order: (u32, Vec<u32>),
    version: &'static str,
    name: &'static str,
    release: u32,
}

fn history() -> BTreeSet<Symbol> {
    let parse = |line: &'static str| {
        let (symbol, release) = line.split_once(' ').unwrap();
        let (name, version) = symbol.split_once('@').unwrap();
        let (kind, numbers) = version.rsplit_once('_').unwrap();
        let kinds = ["IBVERBS", "IBVERBS_PRIVATE", "RDMACM"];
        let kind = kinds.iter().position(|&other| other == kind).unwrap() as u32;
        let numbers = numbers.split('.').map(|number| number.parse().unwrap()).collect();
        Symbol { order: (kind, numbers), version, name, release: release.parse().unwrap() }
    };
    HISTORY.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

/// `name@VERSION` of a release's symbols.
fn symbols_of(release: u32) -> BTreeSet<String> {
    let until = history().into_iter().filter(|symbol| symbol.release <= release);
    until.map(|Symbol { name, version, .. }| format!("{name}@{version}")).collect()
}

/// Of the 2006 interface, with newer versions.
fn is_left_out(symbol: &str, all: &BTreeSet<String>) -> bool {
    let name = symbol.split('@').next().unwrap();
    symbol == LEFT_OUT
        || symbol.ends_with("@IBVERBS_1.0") && all.contains(&*format!("{name}@IBVERBS_1.1"))
}

/// Symbols of `exports.map`, as `name@VERSION`.
pub(crate) fn exported() -> BTreeSet<String> {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("exports.map");
    let (mut version, mut symbols) = (String::new(), BTreeSet::new());
    for line in fs::read_to_string(map).unwrap().lines() {
        if let Some(node) = line.strip_suffix(" {") {
            version = node.to_owned();
        } else if let Some(name) = line.trim().strip_suffix(';').filter(|_| line.starts_with(' '))
            && name != "*"
        {
            symbols.insert(format!("{name}@{version}"));
        }
    }
    symbols
}

#[test]
fn exports_are_those_of_rdma_core() {
    let all = symbols_of(u32::MAX);
    let wanted: BTreeSet<_> =
        all.iter().filter(|symbol| !is_left_out(symbol, &all)).cloned().collect();
    assert!(wanted.len() > 550, "{}", wanted.len());
    assert_eq!(exported(), wanted);
}

/// A library has driver versions of its release only.
#[test]
fn the_history_is_that_of_the_recorded_libraries() {
    for (record, private) in [(common::OLDEST, "PRIVATE_34"), (common::NEWEST, "PRIVATE_65")] {
        let Record { version, .. } = record;
        let release: u32 = version.split('.').next().unwrap().parse().unwrap();
        let expected: BTreeSet<_> = symbols_of(release)
            .into_iter()
            .filter(|symbol| !symbol.contains("PRIVATE_") || symbol.ends_with(private))
            .collect();
        let found: BTreeSet<_> = record.symbols().map(str::to_owned).collect();
        assert_eq!(found, expected, "{version}");
    }
}

#[test]
fn the_library_has_every_export_in_its_version() {
    let library = Library::load();
    for symbol in exported() {
        assert!(!library.find(&symbol).is_null(), "no {symbol}");
    }
    let unknown = [
        "ibv_open_device@IBVERBS_1.14",
        "ibv_register_driver@IBVERBS_1.1",
        "ibv_cmd_alloc_dmah@IBVERBS_PRIVATE_57",
        "verbs_register_driver_65@IBVERBS_PRIVATE_64",
    ];
    for symbol in unknown {
        assert!(library.find(symbol).is_null(), "{symbol}");
    }
}

#[test]
fn what_is_said_to_refuse_does() {
    type Function = extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;
    let library = Library::load();
    let private = ["ibv_cmd_create_cq", "execute_ioctl"].map(|name| ("PRIVATE_57", name));
    let newest: BTreeMap<_, _> =
        history().into_iter().map(|symbol| (symbol.name, symbol.version)).collect();
    for name in REFUSED.split_whitespace() {
        let function = library.find(&format!("{name}@{}", newest[name]));
        assert!(!function.is_null(), "{name}");
        // SAFETY: The function ignores its arguments.
        let function: Function = unsafe { mem::transmute(function) };
        // SAFETY: `errno` is thread-local.
        let errno = unsafe { &mut *libc::__errno_location() };
        *errno = 0;
        let answer = function(0, 0, 0, 0, 0, 0) as c_int;
        let refused = match *errno {
            libc::EOPNOTSUPP => [0, -1, libc::EOPNOTSUPP].contains(&answer),
            libc::ENODATA => answer == -1,
            _ => false,
        };
        assert!(refused, "{name}: {answer}, {errno}");
    }
    for (version, name) in private {
        let function = library.find(&format!("{name}@IBVERBS_{version}"));
        // SAFETY: As above.
        let function: Function = unsafe { mem::transmute(function) };
        assert_eq!(function(0, 0, 0, 0, 0, 0) as c_int, libc::EOPNOTSUPP, "{name}");
    }
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/symbols.md")
}

fn write_page() -> String {
    let all = symbols_of(u32::MAX);
    let refused: BTreeSet<_> = REFUSED.split_whitespace().collect();
    let mut versions: BTreeMap<(u32, Vec<u32>), Vec<Symbol>> = BTreeMap::new();
    for symbol in history() {
        if !symbol.version.contains("PRIVATE") {
            versions.entry(symbol.order.clone()).or_default().push(symbol);
        }
    }
    let mut page = HEAD.to_owned();
    for symbols in versions.values() {
        let version = symbols[0].version;
        let release = symbols.iter().map(|symbol| symbol.release).min().unwrap();
        let (old, symbols): (Vec<&Symbol>, Vec<&Symbol>) = symbols
            .iter()
            .partition(|symbol| is_left_out(&format!("{}@{version}", symbol.name), &all));
        let mut names: Vec<String> = symbols
            .iter()
            .map(|symbol| {
                let name = symbol.name;
                let later = if symbol.release > release {
                    format!(" ({})", symbol.release)
                } else {
                    String::new()
                };
                if refused.contains(name) {
                    format!("*`{name}`*{later}")
                } else {
                    format!("`{name}`{later}")
                }
            })
            .collect();
        if !old.is_empty() {
            names.push(format!("{} of the interface of 2006", old.len()));
        }
        page += &format!("| {version} | {release} | {} |\n", names.join(", "));
    }
    page
}

const HEAD: &str = "\
# Symbols by version

`libroce_abi.so` has every symbol of libibverbs and librdmacm of rdma-core 15 to 65. `readelf -V` of a
program shows what it needs: `ibv_alloc_buf@IBVERBS_1.17` means rdma-core 64 or newer.
`abi/tests/programs/symbols.rs` checks this page; `cargo test -p roce-abi -- --ignored
write_the_page` writes it.

The release is the first with the version; a number in parentheses is a later symbol's. Functions in
*italics* refuse (`EOPNOTSUPP`; `ENODATA` for the descriptor of a buffer without one). No program is linked
with the interface of 2006.

Names for providers' libraries such as libmlx5 (`IBVERBS_PRIVATE_…`) are present for every release, because
programs load such libraries without an adapter. None gets a device: their commands return `EOPNOTSUPP`.

| version | release | symbols |
|---|---|---|
";

#[test]
fn the_page_lists_the_symbols() {
    let found = fs::read_to_string(page()).unwrap_or_default();
    assert!(found == write_page(), "write it with the command that the page names");
}

#[test]
#[ignore = "writes the page"]
fn write_the_page() {
    fs::write(page(), write_page()).unwrap();
}
