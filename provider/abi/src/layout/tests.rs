//! Compares the structures and the constants with a record of what the headers of rdma-core say,
//! and with the headers themselves where they are installed.
//!
//! The record, `tests/data/rdma-core-44.0.txt`, holds names and numbers alone. To write it anew
//! where the headers and the libraries of that version are installed (on Debian 12: libibverbs-dev
//! and librdmacm-dev):
//!
//! ```sh
//! cargo test -p roce-abi -- --ignored write_the_record
//! ```

use std::{path::Path, process::Command};

use roce_provider::{
    cm::{EventKind, PortSpace},
    transport::{
        mem::Access,
        qp::State,
        work::{SendFlags, WcStatus},
    },
};

use super::{attr, cm, consts, declare::Layout, kernel, verbs};

#[path = "../../tests/common/mod.rs"]
mod common;

use common::Facts;

/// Headers of everything that is recorded.
const HEADERS: [&str; 5] = [
    "infiniband/verbs.h",
    "infiniband/sa.h",
    "rdma/ib_user_sa.h",
    "rdma/ib_user_verbs.h",
    "rdma/rdma_cma.h",
];

/// Members and constants that came after the recorded version; what lies before them is compared.
const NEWER_MEMBERS: [(&str, &str); 3] =
    [("ibv_port_attr", "active_speed_ex"), ("ibv_qp_ex", "wr_flush"), ("verbs_context", "newer")];
const NEWER_CONSTANTS: [&str; 6] = [
    "IBV_DEVICE_FLUSH_GLOBAL",
    "IBV_DEVICE_ATOMIC_WRITE",
    "IBV_WC_FLUSH",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_FLUSH_RANGE",
    "IBV_FLUSH_MR",
];

/// Members behind which the layout depends on the size of locks, which differs between processors.
const FIRST_LOCKS: [(&str, &str); 7] = [
    ("ibv_context", "mutex"),
    ("ibv_cq", "mutex"),
    ("ibv_cq_ex", "mutex"),
    ("ibv_qp", "mutex"),
    ("ibv_qp_ex", "qp_base"),
    ("ibv_srq", "mutex"),
    ("verbs_context", "context"),
];

fn layouts() -> impl Iterator<Item = &'static Layout> {
    [attr::LAYOUTS, verbs::LAYOUTS, kernel::LAYOUTS, cm::LAYOUTS].into_iter().flatten()
}

impl Layout {
    /// Members that the recorded version has, with their offsets.
    fn old_members(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let name = self.name;
        self.members
            .iter()
            .filter(move |(member, _)| !NEWER_MEMBERS.contains(&(name, member)))
            .map(|&(member, offset)| (member.trim_start_matches("r#"), offset))
    }

    fn offset(&self, member: &str) -> Option<usize> {
        self.members.iter().find(|(other, _)| *other == member).map(|&(_, offset)| offset)
    }
}

/// Every fact that is recorded, without its number.
fn wanted() -> impl Iterator<Item = String> {
    let structures = layouts().flat_map(|layout| {
        let name = layout.name;
        let members =
            layout.old_members().map(move |(member, _)| format!("member {name} {member}"));
        std::iter::once(format!("struct {name}")).chain(members)
    });
    let constants = constants().into_iter().map(|(name, _)| format!("constant {name}"));
    structures.chain(constants)
}

/// The constants that the recorded version has: those declared here, and those whose numbers the
/// adapter has as its own.
fn constants() -> Vec<(String, i64)> {
    let declared = consts::CONSTANTS
        .iter()
        .filter(|(name, _)| !NEWER_CONSTANTS.contains(name))
        .map(|&(name, number)| (name.to_owned(), number));
    declared.chain(shared_numbers().map(|(name, number)| (name.to_owned(), number))).collect()
}

/// Numbers of the adapter that are handed to programs and taken from them as they are.
fn shared_numbers() -> impl Iterator<Item = (&'static str, i64)> {
    let access = [
        ("IBV_ACCESS_LOCAL_WRITE", Access::LOCAL_WRITE),
        ("IBV_ACCESS_REMOTE_WRITE", Access::REMOTE_WRITE),
        ("IBV_ACCESS_REMOTE_READ", Access::REMOTE_READ),
        ("IBV_ACCESS_REMOTE_ATOMIC", Access::REMOTE_ATOMIC),
        ("IBV_ACCESS_MW_BIND", Access::MW_BIND),
    ];
    let flags = [
        ("IBV_SEND_FENCE", SendFlags::FENCE),
        ("IBV_SEND_SIGNALED", SendFlags::SIGNALED),
        ("IBV_SEND_SOLICITED", SendFlags::SOLICITED),
    ];
    let statuses = [
        ("IBV_WC_LOC_LEN_ERR", WcStatus::LocLenErr),
        ("IBV_WC_LOC_QP_OP_ERR", WcStatus::LocQpOpErr),
        ("IBV_WC_LOC_PROT_ERR", WcStatus::LocProtErr),
        ("IBV_WC_WR_FLUSH_ERR", WcStatus::WrFlushErr),
        ("IBV_WC_MW_BIND_ERR", WcStatus::MwBindErr),
        ("IBV_WC_BAD_RESP_ERR", WcStatus::BadRespErr),
        ("IBV_WC_LOC_ACCESS_ERR", WcStatus::LocAccessErr),
        ("IBV_WC_REM_INV_REQ_ERR", WcStatus::RemInvReqErr),
        ("IBV_WC_REM_ACCESS_ERR", WcStatus::RemAccessErr),
        ("IBV_WC_REM_OP_ERR", WcStatus::RemOpErr),
        ("IBV_WC_RETRY_EXC_ERR", WcStatus::RetryExcErr),
        ("IBV_WC_RNR_RETRY_EXC_ERR", WcStatus::RnrRetryExcErr),
    ];
    let spaces = [
        ("RDMA_PS_IPOIB", PortSpace::Ipoib),
        ("RDMA_PS_TCP", PortSpace::Tcp),
        ("RDMA_PS_UDP", PortSpace::Udp),
        ("RDMA_PS_IB", PortSpace::Ib),
    ];
    let states = [
        ("IBV_QPS_RESET", State::Reset),
        ("IBV_QPS_INIT", State::Init),
        ("IBV_QPS_RTR", State::Rtr),
        ("IBV_QPS_RTS", State::Rts),
        ("IBV_QPS_SQD", State::Sqd),
        ("IBV_QPS_SQE", State::Sqe),
        ("IBV_QPS_ERR", State::Err),
    ];
    let events = EventKind::ALL.iter().map(|&kind| (kind.name(), kind as i64));
    access
        .map(|(name, access)| (name, access.bits().into()))
        .into_iter()
        .chain(flags.map(|(name, flag)| (name, flag.bits().into())))
        .chain(statuses.map(|(name, status)| (name, status as i64)))
        .chain(spaces.map(|(name, space)| (name, space as i64)))
        .chain(states.map(|(name, state)| {
            (name, State::ALL.iter().position(|&other| other == state).unwrap() as i64)
        }))
        .chain(events)
}

/// Facts to compare with: the record, and the installed headers where there are any.
fn sources() -> Vec<(&'static str, Facts)> {
    let mut sources = vec![("the record", common::recorded())];
    match common::compiler() {
        Some(compiler) if common::has_headers(&compiler) => {
            let printed = common::print_facts(&compiler, &[], &HEADERS, wanted());
            sources.push(("the installed headers", common::facts(&printed)));
        }
        Some(_) => println!("no headers are installed: compared with the record alone"),
        None => println!("no C compiler is installed: compared with the record alone"),
    }
    for (source, facts) in &sources {
        println!("compared with {source}: {} facts", facts.len());
    }
    sources
}

/// Compares structures with what a source says of them. Structures may be longer here where they
/// have grown; one of them has grown at its start.
fn compare(layouts: &[Layout]) {
    for (source, facts) in &sources() {
        // numbers of this processor: the record is of another
        let comparable = *source != "the record" || cfg!(target_arch = "x86_64");
        for layout in layouts {
            let name = layout.name;
            let lock = FIRST_LOCKS
                .iter()
                .find(|(other, _)| !comparable && *other == name)
                .and_then(|(_, member)| layout.offset(member));
            let theirs = |fact: String| {
                let number = facts.get(&fact).unwrap_or_else(|| panic!("{source} lacks {fact}"));
                usize::try_from(*number).unwrap()
            };
            let size = theirs(format!("struct {name}"));
            if NEWER_MEMBERS.iter().any(|newer| newer.0 == name) {
                assert!(lock.is_some() || layout.size >= size, "{source}: struct {name}");
            } else {
                assert!(lock.is_some() || layout.size == size, "{source}: struct {name}");
            }
            // programs point to its last member, and it grows at its start
            let bases = if name == "verbs_context" {
                let theirs = theirs("member verbs_context context".into());
                (layout.offset("context").unwrap(), theirs)
            } else {
                (0, 0)
            };
            for (member, ours) in layout.old_members() {
                if lock.is_some_and(|lock| ours > lock) {
                    continue;
                }
                let theirs = theirs(format!("member {name} {member}"));
                // distances from the base on either side: equal if these sums are
                assert_eq!(ours + bases.1, theirs + bases.0, "{source}: {name}.{member}");
            }
        }
    }
}

#[test]
fn verbs_have_the_layout_of_c() {
    compare(attr::LAYOUTS);
    compare(verbs::LAYOUTS);
}

#[test]
fn the_kernels_structures_have_the_layout_of_c() {
    compare(kernel::LAYOUTS);
}

#[test]
fn connection_management_has_the_layout_of_c() {
    compare(cm::LAYOUTS);
}

#[test]
fn constants_have_the_numbers_of_c() {
    for (source, facts) in &sources() {
        for (name, number) in constants() {
            assert_eq!(facts.get(&format!("constant {name}")), Some(&number), "{source}: {name}");
        }
    }
}

#[test]
fn the_record_holds_what_is_compared_and_nothing_else() {
    let mut wanted: Vec<String> = wanted().collect();
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(common::recorded().into_keys().collect::<Vec<_>>(), wanted);
}

/// Symbols that a library defines, as `symbol name@VERSION`.
fn symbols(library: &str) -> Vec<String> {
    let listed = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions", library])
        .output()
        .expect("nm");
    assert!(listed.status.success(), "{library} is needed");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let defined = listed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    // an absolute symbol is the name of a version
    let mut symbols: Vec<String> = defined
        .filter(|words| words[1] != "A")
        .map(|words| format!("symbol {}", words[2].replace("@@", "@")))
        .collect();
    symbols.sort_unstable();
    symbols
}

#[test]
#[ignore = "writes the record from installed headers and libraries"]
fn write_the_record() {
    let compiler = common::compiler().expect("a C compiler");
    let installed = Command::new("pkg-config").args(["--modversion", "libibverbs"]).output();
    let installed = String::from_utf8(installed.expect("pkg-config").stdout).unwrap();
    assert!(
        installed.trim().ends_with(common::VERSION),
        "libibverbs-dev {installed} is not of {}",
        common::VERSION
    );
    let printed = common::print_facts(&compiler, &[], &HEADERS, wanted());
    let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines.dedup();
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        let path = format!("/usr/lib/{}-linux-gnu/{library}", std::env::consts::ARCH);
        lines.extend(symbols(&path));
    }
    let head = format!(
        "# The C interface of rdma-core {} on {} Linux: sizes of structures, offsets of members,\n\
         # constants, symbols with their versions. Written by the test `write_the_record`.\n",
        common::VERSION,
        std::env::consts::ARCH,
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/data/rdma-core-{}.txt", common::VERSION));
    std::fs::write(path, head + &lines.join("\n") + "\n").unwrap();
}
