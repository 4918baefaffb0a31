//! Imports point down and never in a loop, in every crate.
//!
//! A loop is any set of files that use each other's names. A re-exported name belongs to the file
//! that defines it. Tests are exempt.

use std::{collections::BTreeSet, path::Path, sync::LazyLock};

use graph::Layers;
use modules::{Edges, Modules, in_folder};

mod comments;
mod entries;
mod fixture;
mod graph;
mod modules;
mod words;

struct Crate {
    folder: &'static str,
    root: &'static str,
    layers: Layers,
}

const TRANSPORT: Crate = Crate {
    folder: "transport/src",
    root: "lib.rs",
    layers: &[
        &["addr", "bounded", "defaults", "ids", "psn", "time", "hash", "named", "pkeys"],
        &["congestion", "wire", "gids"],
        &["event", "mem", "work"],
        &["cm"], // knows no queue pairs
        &["qp"],
        &["share"],
        &["adapter", "trace"], // filled by the adapter, whose errors it names
        &["explain"],
    ],
};

const FABRIC: Crate = Crate {
    folder: "fabric/src",
    root: "lib.rs",
    layers: &[&["queue", "rule"], &["clause"], &["faults"], &["syntax"]],
};

const CAPTURE: Crate = Crate {
    folder: "capture/src",
    root: "lib.rs",
    layers: &[&["comment", "writer"], &["explain"]],
};

const ETHERNET: Crate = Crate {
    folder: "ethernet/src",
    root: "lib.rs",
    layers: &[
        &["address", "counters", "frame"],
        &["build"],
        &["dhcp", "flow", "groups", "neighbors", "pauses"],
        &["station"],
    ],
};

const WORLD: Crate = Crate {
    folder: "world/src",
    root: "lib.rs",
    layers: &[
        &["failure", "line", "packet_text"],
        &["names", "node", "settings", "viewer"],
        &["post"],
        &["script"],
        &["world"],
        &["scenarios"],
        &["scenario"],
    ],
};

const PROVIDER: Crate = Crate {
    folder: "provider/src",
    root: "lib.rs",
    layers: &[
        &[
            "bind",
            "calls",
            "cancel",
            "clock",
            "counters",
            "errnos",
            "notify",
            "readiness",
            "signals",
            "sync",
            "variables",
        ],
        &["report"],
        &["region", "fabric", "diagnosis", "checks", "notice"],
        &["faults"],
        &["port", "link"],
        &["engine"],
        &["publish", "verbs"],
        &["profile"],
        &["port_counters"],
        &["sysfs"],
        &["device"],
        &["cm", "control", "environment", "reaper"],
        &["tokio"],
    ],
};

const RSOCKET: Crate = Crate {
    folder: "rsocket/src",
    root: "lib.rs",
    layers: &[
        &["deadline", "errors", "headers", "settings", "waiters", "wire"],
        &["incoming", "outgoing", "peers", "resolve", "udp"],
        &["*"],
    ],
};

const ABI: Crate = Crate {
    folder: "abi/src",
    root: "lib.rs",
    layers: &[
        &["layout"],
        &["rule"],
        &["adapter", "at_end", "sync"],
        &["hooks"],
        &["errno", "export", "second", "load"],
        &["call", "wait", "translate", "objects"],
        &["*"],
        &["cm"],
        &["rsocket"],
        &["exit"],
    ],
};

const PRELOAD: Crate = Crate {
    folder: "preload/src",
    root: "lib.rs",
    layers: &[
        &["function"],
        &["next", "table"],
        &["rdma"],
        &["watched"],
        &["fork"],
        &["connect", "descriptor", "option", "poll", "transfer"],
        &["epoll"],
    ],
};

const CLI: Crate = Crate {
    folder: "cli/src",
    root: "main.rs",
    layers: &[
        &["failure", "output", "ladder", "markup"],
        &["common", "exchange", "library", "non_linux"],
        &["datagrams"],
        &[
            "completions",
            "conform",
            "demo",
            "devinfo",
            "explain",
            "fault",
            "manual",
            "mckey",
            "perf",
            "pingpong",
            "playground",
            "rping",
            "run",
            "ucmatose",
            "udaddy",
            "share",
            "unpack",
        ],
    ],
};

const AGENT: Crate = Crate {
    folder: "agent/src",
    root: "lib.rs",
    layers: &[&["bound"], &["command", "failure"], &["named"], &["translate"], &["objects"]],
};

const CONFORMANCE: Crate = Crate {
    folder: "conformance/src",
    root: "lib.rs",
    layers: &[
        &["words"],
        &["case", "outcome"],
        &["subject"],
        &["dialog"],
        &["packet"],
        &["run"],
        &["known", "parse", "simulated"],
    ],
};

const PLAYGROUND: Crate = Crate {
    folder: "playground/engine/src",
    root: "lib.rs",
    layers: &[&["spec"], &["rows"], &["state"], &["dissect", "explain"]],
};

const CRATES: [&Crate; 13] = [
    &TRANSPORT,
    &PRELOAD,
    &FABRIC,
    &CAPTURE,
    &ETHERNET,
    &WORLD,
    &AGENT,
    &CONFORMANCE,
    &PROVIDER,
    &RSOCKET,
    &ABI,
    &CLI,
    &PLAYGROUND,
];

#[test]
fn there_is_no_import_loop() {
    check(|_, found| {
        let loops = graph::loops(&found.edges);
        loops
            .iter()
            .map(|files| format!("import loop:\n{}", graph::describe(&found.edges, files)))
            .collect()
    });
}

#[test]
fn no_import_points_up() {
    check(|listed, found| {
        let upward = graph::upward(&found.edges, listed.layers);
        upward
            .iter()
            .map(|(file, imported)| {
                let names: Vec<_> = found.edges[file][imported].iter().cloned().collect();
                format!("upward import: {file} -> {imported}: {}", names.join(", "))
            })
            .collect()
    });
}

#[test]
fn every_module_has_a_layer() {
    check(|listed, found| {
        let files = found.files.iter();
        files
            .filter(|file| graph::layer(listed.layers, file).is_none())
            .map(|file| format!("in no layer of tests/structure/main.rs: {file}"))
            .collect()
    });
}

struct Found {
    files: BTreeSet<String>,
    edges: Edges,
}

/// Read once for all tests.
static FOUND: LazyLock<Vec<Found>> = LazyLock::new(|| {
    let read = |listed: &&Crate| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(listed.folder);
        let modules = Modules::read(&in_folder(&folder), listed.root);
        let files = modules.files().into_iter().map(String::from).collect();
        Found { files, edges: modules.edges() }
    };
    CRATES.iter().map(read).collect()
});

fn check(faults: impl Fn(&Crate, &Found) -> Vec<String>) {
    let mut text = String::new();
    for (listed, found) in CRATES.iter().zip(&*FOUND) {
        for fault in faults(listed, found) {
            text += &format!("{}: {}\n", listed.folder, fault.trim_end());
        }
    }
    assert!(text.is_empty(), "\n{text}");
}
