//! Symbols of the shared object and their versions, compared with those of rdma-core.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{common, library::Library};

/// A driver's way to announce itself before rdma-core 25, which none uses any more.
const LEFT_OUT: &str = "ibv_register_driver@IBVERBS_1.1";

/// True for the symbols that this library does without: those of the interface of 2006, which the
/// same names replace in a newer version.
fn is_left_out(symbol: &str, all: &BTreeSet<&str>) -> bool {
    let name = symbol.split('@').next().unwrap();
    symbol == LEFT_OUT
        || symbol.ends_with("@IBVERBS_1.0") && all.contains(&*format!("{name}@IBVERBS_1.1"))
}

/// Symbols of `exports.map`, as `name@VERSION`.
fn exported() -> BTreeSet<String> {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("exports.map");
    let (mut version, mut symbols) = (String::new(), BTreeSet::new());
    for line in fs::read_to_string(map).unwrap().lines() {
        if let Some(node) = line.strip_suffix(" {") {
            version = node.to_owned();
        } else if let Some(name) = line.trim().strip_suffix(';').filter(|_| line.starts_with(' ')) {
            symbols.insert(format!("{name}@{version}"));
        }
    }
    symbols
}

#[test]
fn exports_are_those_of_rdma_core() {
    let recorded: BTreeSet<&str> = common::recorded_symbols().collect();
    let wanted: BTreeSet<String> = recorded
        .iter()
        .filter(|symbol| !is_left_out(symbol, &recorded))
        .map(|symbol| (*symbol).to_owned())
        .collect();
    assert!(wanted.len() > 200, "{}", wanted.len());
    assert_eq!(exported(), wanted);
}

#[test]
fn the_library_has_every_export_in_its_version() {
    let library = Library::load();
    for symbol in exported() {
        assert!(!library.find(&symbol).is_null(), "no {symbol}");
    }
    let unknown = ["ibv_open_device@IBVERBS_1.14", "ibv_register_driver@IBVERBS_1.1"];
    for symbol in unknown {
        assert!(library.find(symbol).is_null(), "{symbol}");
    }
}
