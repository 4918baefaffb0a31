//! Imports point down, and never in a loop: the files of every crate, and the layers below, hold
//! to it.
//!
//! A loop is any set of files that use names which the others define, a parent and its child
//! included. What a re-export names belongs to the file that defines it. Tests do not count.

use std::{collections::BTreeSet, path::Path};

use graph::Layers;
use modules::{Edges, Modules, in_folder};

mod fixture;
mod graph;
mod modules;

struct Crate {
    folder: &'static str,
    root: &'static str,
    layers: Layers,
    /// Loops that are still there: all files of each.
    known_loops: &'static [&'static [&'static str]],
    /// Upward imports that are still there: file and imported file.
    known_upward: &'static [(&'static str, &'static str)],
}

const TRANSPORT: Crate = Crate {
    folder: "transport/src",
    root: "lib.rs",
    layers: &[
        &["addr", "psn", "time", "hash", "share", "pkeys", "gids"],
        &["wire"],
        &["event", "mem", "work"],
        &["qp", "cm"],
        &["adapter"],
    ],
    known_loops: &[],
    known_upward: &[],
};

const PROVIDER: Crate = Crate {
    folder: "provider/src",
    root: "lib.rs",
    layers: &[
        &["clock"],
        &["region", "fabric"],
        &["port", "publish", "link"],
        &["engine"],
        &["verbs", "device", "cm", "environment", "tokio"],
    ],
    known_loops: &[],
    known_upward: &[],
};

const ABI: Crate = Crate {
    folder: "provider/abi/src",
    root: "lib.rs",
    layers: &[
        &["layout"],
        &["errno", "object", "context", "text"],
        &["*"],
        &["cm", "export"],
    ],
    known_loops: &[],
    known_upward: &[],
};

const CLI: Crate = Crate {
    folder: "cli/src",
    root: "main.rs",
    layers: &[
        &["common"],
        &["datagrams"],
        &["demo", "devinfo", "mckey", "pingpong", "rping", "run", "ucmatose", "udaddy"],
    ],
    known_loops: &[],
    known_upward: &[],
};

const CRATES: [&Crate; 4] = [&TRANSPORT, &PROVIDER, &ABI, &CLI];

#[test]
fn there_is_no_import_loop() {
    check(|name, found| {
        let edges = &found.edges;
        let (mut new, mut left) = (Vec::new(), BTreeSet::new());
        for files in graph::loops(edges) {
            let listed = name.known_loops.iter().position(|known| {
                files.iter().all(|file| known.contains(&file.as_str()))
            });
            match listed {
                Some(known) => drop(left.insert(known)),
                None => new.push(format!("import loop:\n{}", graph::describe(edges, &files))),
            }
        }
        for (place, known) in name.known_loops.iter().enumerate() {
            if !left.contains(&place) {
                new.push(format!("no loop is left in this entry of known_loops: {known:?}"));
            }
        }
        new
    });
}

#[test]
fn no_import_points_up() {
    check(|name, found| {
        let upward = graph::upward(&found.edges, name.layers);
        let is_known = |(file, imported): &&(String, String)| {
            name.known_upward.contains(&(file.as_str(), imported.as_str()))
        };
        let mut new: Vec<String> = upward
            .iter()
            .filter(|import| !is_known(import))
            .map(|(file, imported)| {
                let names: Vec<_> = found.edges[file][imported].iter().cloned().collect();
                format!("upward import: {file} -> {imported}: {}", names.join(", "))
            })
            .collect();
        for known in name.known_upward {
            if !upward.iter().any(|(file, imported)| (file.as_str(), imported.as_str()) == *known) {
                new.push(format!("no longer an upward import, strike it: {known:?}"));
            }
        }
        new
    });
}

#[test]
fn every_module_has_a_layer() {
    check(|name, found| {
        let files = found.files.iter();
        files
            .filter(|file| graph::layer(name.layers, file).is_none())
            .map(|file| format!("in no layer of tests/structure/main.rs: {file}"))
            .collect()
    });
}

struct Found {
    files: BTreeSet<String>,
    edges: Edges,
}

/// Fails with the faults that `faults` finds in any crate.
fn check(faults: impl Fn(&Crate, &Found) -> Vec<String>) {
    let mut text = String::new();
    for name in CRATES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name.folder);
        let modules = Modules::read(&in_folder(&folder), name.root);
        let files = modules.files().into_iter().map(String::from).collect();
        for fault in faults(name, &Found { files, edges: modules.edges() }) {
            text += &format!("{}: {}\n", name.folder, fault.trim_end());
        }
    }
    assert!(text.is_empty(), "\n{text}");
}
