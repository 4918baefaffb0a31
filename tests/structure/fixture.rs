//! The check on deliberately wrong sources.

use std::collections::BTreeSet;

use super::{
    graph::{self, Layers},
    modules::{Edges, Modules},
};

/// Of a crate's files, root first.
fn edges(files: &[(&str, &str)]) -> Edges {
    let source = |wanted: &str| {
        files.iter().find(|(file, _)| *file == wanted).map(|(_, text)| text.to_string())
    };
    Modules::read(&source, files[0].0).edges()
}

fn loops(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    graph::loops(&edges(files)).into_iter().map(|files| files.into_iter().collect()).collect()
}

#[test]
fn a_loop_of_three_files_is_found_and_named() {
    let edges = edges(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; fn f() { let _ = crate::c::C; }"),
        ("c.rs", "use std::fmt; pub struct C; macro_rules! m { () => {} } m!(crate::a::A);"),
        ("d.rs", "use crate::a::A; pub struct D(A);"),
    ]);
    let found = graph::loops(&edges);
    let expected: BTreeSet<String> = ["a.rs", "b.rs", "c.rs"].map(String::from).into();
    assert_eq!(found, Vec::from([expected.clone()]));
    assert_eq!(
        graph::describe(&edges, &expected),
        "    a.rs -> b.rs: B\n    b.rs -> c.rs: C\n    c.rs -> a.rs: A\n"
    );
}

#[test]
fn a_parent_and_its_child_are_a_loop_if_each_uses_the_other() {
    let child = ("a/child.rs", "use super::Shared; pub struct Child(Shared);");
    let user = "mod child; use child::Child; pub struct Shared; struct User(Child);";
    let name = "mod child; pub use child::Child; pub struct Shared;";
    let both = "mod child; pub use child::Child; pub struct Shared; struct User(Child);";
    for (parent, found) in [(user, true), (name, false), (both, true)] {
        let loops = loops(&[("lib.rs", "mod a;"), ("a/mod.rs", parent), child]);
        assert_eq!(!loops.is_empty(), found, "{parent}");
    }
}

#[test]
fn a_reexport_leads_to_the_file_that_defines() {
    let found = edges(&[
        ("lib.rs", "mod a; mod b; pub use a::Inner as Renamed;"),
        ("a/mod.rs", "mod inner; pub use inner::*;"),
        ("a/inner.rs", "pub struct Inner; pub enum Kind { One }"),
        ("b.rs", "use crate::{Renamed, a}; fn f(_: Renamed) -> a::Kind { a::Kind::One }"),
    ]);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["b.rs"]);
    assert_eq!(found["b.rs"].keys().collect::<Vec<_>>(), ["a/inner.rs"]);
    assert_eq!(Vec::from_iter(&found["b.rs"]["a/inner.rs"]), ["Inner", "Kind"]);
}

#[test]
fn tests_and_other_crates_do_not_count() {
    let a = "pub struct A;
        #[cfg(test)] use crate::b::B;
        #[cfg(test)] mod tests { use crate::b::B; }
        #[cfg(all(test, unix))] mod more;
        #[cfg(not(test))] fn f() { ::b::B; }";
    let b = "use super::a::A; pub struct B(A);";
    assert!(loops(&[("main.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]).is_empty());
    let counted = a.replace("not(test)", "not(miri)").replace("::b::B;", "crate::b::B;");
    assert!(!loops(&[("main.rs", "mod a; mod b;"), ("a.rs", &counted), ("b.rs", b)]).is_empty());
}

#[test]
fn an_upward_import_is_found() {
    const LAYERS: Layers = &[&["low", "high/ground"], &["*"], &["high"]];
    let edges = edges(&[
        ("lib.rs", "mod low; mod middle; mod high; pub use high::High;"),
        ("low.rs", "use crate::high::ground::Ground; use crate::middle::Middle;"),
        ("middle.rs", "use crate::low::Low; pub struct Middle; fn f() -> crate::High { todo!() }"),
        ("high/mod.rs", "pub mod ground; use crate::middle::Middle; pub struct High(Middle);"),
        ("high/ground.rs", "pub struct Ground;"),
    ]);
    let upward = graph::upward(&edges, LAYERS);
    let upward: Vec<_> = upward.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(upward, [("low.rs", "middle.rs"), ("middle.rs", "high/mod.rs")]);
    assert_eq!(graph::layer(&LAYERS[..1], "middle.rs"), None);
}
