//! Compares the structures with what the C compiler makes of the installed headers.

use std::{fmt::Write as _, process::Command};

use super::{Layout, cm, kernel, verbs};

/// Members that came after version 44, the oldest that CI has headers of; what lies before them is
/// compared.
const NEWER: [(&str, &str); 3] =
    [("ibv_port_attr", "active_speed_ex"), ("ibv_qp_ex", "wr_flush"), ("verbs_context", "newer")];

fn program(headers: &[&str], layouts: &[Layout]) -> String {
    let mut text = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    headers.iter().for_each(|header| writeln!(text, "#include <{header}>").unwrap());
    text += "int main(void) {\n";
    for Layout { name, members, .. } in layouts {
        writeln!(text, "printf(\"{name} size %zu\\n\", sizeof(struct {name}));").unwrap();
        for (member, _) in members.iter().filter(|(member, _)| !NEWER.contains(&(name, member))) {
            let member = member.trim_start_matches("r#");
            writeln!(
                text,
                "printf(\"{name} {member} %zu\\n\", offsetof(struct {name}, {member}));"
            )
            .unwrap();
        }
    }
    text + "}\n"
}

fn compare(headers: &[&str], layouts: &[Layout]) {
    let directory =
        std::env::temp_dir().join(format!("roce-layout-{}-{}", std::process::id(), layouts.len()));
    std::fs::create_dir_all(&directory).unwrap();
    let (source, binary) = (directory.join("layout.c"), directory.join("layout"));
    std::fs::write(&source, program(headers, layouts)).unwrap();
    let compiled =
        Command::new("cc").arg("-o").arg(&binary).arg(&source).status().expect("a C compiler");
    assert!(
        compiled.success(),
        "the headers of libibverbs and librdmacm are needed: libibverbs-dev, librdmacm-dev"
    );
    let printed = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();

    let mut lines = printed.lines();
    for Layout { name, size, members } in layouts {
        let mut expect = |what: &str, ours: usize, exact: bool| {
            let line = lines.next().unwrap_or_default();
            let theirs: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert_eq!(line.rsplit_once(' ').unwrap().0, format!("{name} {what}"));
            if exact {
                assert_eq!(ours, theirs, "{name} {what}");
            } else {
                assert!(ours >= theirs, "{name} {what}: {ours} here, {theirs} in C");
            }
        };
        let grown = NEWER.iter().any(|newer| newer.0 == *name);
        expect("size", *size, !grown);
        for (member, offset) in
            members.iter().filter(|(member, _)| !NEWER.contains(&(name, member)))
        {
            // this one has grown at its start
            let grew = if *name == "verbs_context" { 48 } else { 0 };
            expect(member.trim_start_matches("r#"), offset - grew, true);
        }
    }
}

#[test]
fn verbs_have_the_layout_of_c() {
    compare(&["infiniband/verbs.h"], verbs::LAYOUTS);
}

#[test]
fn the_kernels_structures_have_the_layout_of_c() {
    compare(&["infiniband/sa.h", "rdma/ib_user_sa.h", "rdma/ib_user_verbs.h"], kernel::LAYOUTS);
}

#[test]
fn connection_management_has_the_layout_of_c() {
    compare(&["rdma/rdma_cma.h"], cm::LAYOUTS);
}
