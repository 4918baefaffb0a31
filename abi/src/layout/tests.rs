//! Structures and constants against recorded and installed headers of rdma-core.
//!
//! To rewrite a record (`tests/data/rdma-core-*.txt`), install its version (Debian 12:
//! libibverbs-dev, librdmacm-dev), or unpack it in a directory:
//!
//! ```sh
//! cargo test -p roce-abi -- --ignored write_the_record
//! RDMA_CORE=directory cargo test -p roce-abi -- --ignored write_the_record
//! ```

use std::{fs, path::Path, process::Command};

use roce_provider::{
    cm::{EventKind, PortSpace},
    transport::{
        mem::Access,
        qp::State,
        work::{CountedOps, SendFlags, WcStatus},
    },
};

use super::{attr, cm, consts, declare::Layout, kernel, verbs};

#[path = "../../tests/common/mod.rs"]
mod common;

use common::Facts;

const HEADERS: [&str; 5] = [
    "infiniband/verbs.h",
    "infiniband/sa.h",
    "rdma/ib_user_sa.h",
    "rdma/ib_user_verbs.h",
    "rdma/rdma_cma.h",
];

/// Newer than the oldest record.
const NEWER_STRUCTURES: [&str; 5] = [
    "ibv_comp_cntr",
    "ibv_comp_cntr_caps",
    "ibv_comp_cntr_init_attr",
    "ibv_mr_init_attr",
    "ibv_qp_attach_comp_cntr_attr",
];
const NEWER_MEMBERS: [(&str, &str); 8] = [
    ("ibv_port_attr", "active_speed_ex"),
    ("ibv_qp_ex", "wr_flush"),
    ("verbs_context", "free_buf"),
    ("verbs_context", "alloc_buf"),
    ("verbs_context", "dm_export_dmabuf_fd"),
    ("verbs_context", "reg_mr_ex"),
    ("verbs_context", "dealloc_dmah"),
    ("verbs_context", "alloc_dmah"),
];
const NEWER_CONSTANTS: [&str; 24] = [
    "IBV_COMP_CNTR_TYPE_BYTES",
    "IBV_COMP_CNTR_TYPE_WRS",
    "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC",
    "IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ",
    "IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE",
    "IBV_QP_ATTACH_COMP_CNTR_OP_RECV",
    "IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ",
    "IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE",
    "IBV_QP_ATTACH_COMP_CNTR_OP_SEND",
    "IBV_REG_MR_MASK_ADDR",
    "IBV_REG_MR_MASK_BUF",
    "IBV_REG_MR_MASK_DMAH",
    "IBV_REG_MR_MASK_FD",
    "IBV_REG_MR_MASK_FD_OFFSET",
    "IBV_REG_MR_MASK_IOVA",
    "RAI_DNS",
    "RAI_SA",
    "RDMA_CM_EVENT_ADDRINFO_ERROR",
    "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    "RDMA_CM_EVENT_USER",
    "IBV_WC_FLUSH",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_FLUSH_RANGE",
    "IBV_FLUSH_MR",
];

/// Without a name in `infiniband/verbs.h`.
const NAMELESS: [&str; 2] = ["IBV_DEVICE_FLUSH_GLOBAL", "IBV_DEVICE_ATOMIC_WRITE"];

/// After these the layout depends on the processor's lock sizes.
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Oldest,
    All,
}

impl Layout {
    fn members(&self, extent: Extent) -> impl Iterator<Item = (&'static str, usize)> {
        let name = self.name;
        self.members
            .iter()
            .filter(move |(member, _)| {
                extent == Extent::All || !NEWER_MEMBERS.contains(&(name, member))
            })
            .map(|&(member, offset)| (member.trim_start_matches("r#"), offset))
    }

    fn offset(&self, member: &str) -> Option<usize> {
        self.members.iter().find(|(other, _)| *other == member).map(|&(_, offset)| offset)
    }

    fn is_in(&self, extent: Extent) -> bool {
        extent == Extent::All || !NEWER_STRUCTURES.contains(&self.name)
    }
}

/// Without numbers.
fn wanted(extent: Extent) -> impl Iterator<Item = String> {
    let structures = layouts().filter(move |layout| layout.is_in(extent)).flat_map(move |layout| {
        let name = layout.name;
        let members =
            layout.members(extent).map(move |(member, _)| format!("member {name} {member}"));
        std::iter::once(format!("struct {name}")).chain(members)
    });
    let constants = constants(extent).map(|(name, _)| format!("constant {name}"));
    structures.chain(constants)
}

/// Declared here, or the adapter's.
fn constants(extent: Extent) -> impl Iterator<Item = (&'static str, i64)> {
    let declared = consts::CONSTANTS.iter().copied().chain(shared_numbers());
    declared
        .filter(|(name, _)| !NAMELESS.contains(name))
        .filter(move |(name, _)| extent == Extent::All || !NEWER_CONSTANTS.contains(name))
}

/// Equal to C's.
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
    let counted = [
        ("IBV_QP_ATTACH_COMP_CNTR_OP_SEND", CountedOps::SEND),
        ("IBV_QP_ATTACH_COMP_CNTR_OP_RECV", CountedOps::RECV),
        ("IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ", CountedOps::READ),
        ("IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ", CountedOps::REMOTE_READ),
        ("IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE", CountedOps::WRITE),
        ("IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE", CountedOps::REMOTE_WRITE),
    ];
    let events = EventKind::ALL.iter().map(|&kind| (kind.name(), kind as i64));
    access
        .map(|(name, access)| (name, access.bits().into()))
        .into_iter()
        .chain(flags.map(|(name, flag)| (name, flag.bits().into())))
        .chain(counted.map(|(name, ops)| (name, ops.bits().into())))
        .chain(statuses.map(|(name, status)| (name, status as i64)))
        .chain(spaces.map(|(name, space)| (name, space as i64)))
        .chain(states.map(|(name, state)| {
            (name, State::ALL.iter().position(|&other| other == state).unwrap() as i64)
        }))
        .chain(events)
}

/// A record, or installed headers.
struct Source {
    name: String,
    facts: Facts,
    extent: Extent,
    /// x86-64 numbers.
    recorded: bool,
}

fn sources() -> Vec<Source> {
    let records = [(common::OLDEST, Extent::Oldest), (common::NEWEST, Extent::All)];
    let mut sources = Vec::from(records.map(|(record, extent)| Source {
        name: format!("the record of {}", record.version),
        facts: record.facts(),
        extent,
        recorded: true,
    }));
    match common::compiler() {
        Some(compiler) if common::has_headers(&compiler) => {
            let extent = Extent::Oldest; // at least
            let printed = common::print_facts(&compiler, &[], &HEADERS, wanted(extent));
            let (name, facts) = ("the installed headers".into(), common::facts(&printed));
            sources.push(Source { name, facts, extent, recorded: false });
        }
        Some(_) => println!("no headers are installed: compared with the records alone"),
        None => println!("no C compiler is installed: compared with the records alone"),
    }
    for Source { name, facts, .. } in &sources {
        println!("compared with {name}: {} facts", facts.len());
    }
    sources
}

/// Structures may have grown, one of them at its start.
fn compare(layouts: &[Layout]) {
    for Source { name: source, facts, extent, recorded } in &sources() {
        let comparable = !recorded || cfg!(target_arch = "x86_64");
        for layout in layouts.iter().filter(|layout| layout.is_in(*extent)) {
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
            let has_grown = NEWER_MEMBERS.iter().any(|newer| newer.0 == name);
            if has_grown && *extent == Extent::Oldest {
                assert!(lock.is_some() || layout.size >= size, "{source}: struct {name}");
            } else {
                assert!(lock.is_some() || layout.size == size, "{source}: struct {name}");
            }
            // grows at its start; programs point to its last member
            let bases = if name == "verbs_context" {
                let theirs = theirs("member verbs_context context".into());
                (layout.offset("context").unwrap(), theirs)
            } else {
                (0, 0)
            };
            for (member, ours) in layout.members(*extent) {
                if lock.is_some_and(|lock| ours > lock) {
                    continue;
                }
                let theirs = theirs(format!("member {name} {member}"));
                // equal distances from the base
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
    for Source { name: source, facts, extent, .. } in &sources() {
        for (name, number) in constants(*extent) {
            assert_eq!(facts.get(&format!("constant {name}")), Some(&number), "{source}: {name}");
        }
    }
}

#[test]
fn the_records_hold_what_is_compared_and_nothing_else() {
    for (record, extent) in [(common::OLDEST, Extent::Oldest), (common::NEWEST, Extent::All)] {
        let mut wanted: Vec<String> = wanted(extent).collect();
        wanted.sort_unstable();
        wanted.dedup();
        assert_eq!(record.facts().into_keys().collect::<Vec<_>>(), wanted, "{}", record.version);
    }
}

/// `symbol name@VERSION`.
fn symbols(library: &str) -> Vec<String> {
    let listed = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions", library])
        .output()
        .expect("nm");
    assert!(listed.status.success(), "{library} is needed");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let defined = listed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    // absolute symbols name versions
    let mut symbols: Vec<String> = defined
        .filter(|words| words[1] != "A")
        .map(|words| format!("symbol {}", words[2].replace("@@", "@")))
        .collect();
    symbols.sort_unstable();
    symbols
}

#[test]
#[ignore = "writes a record from headers and libraries"]
fn write_the_record() {
    let compiler = common::compiler().expect("a C compiler");
    let root = std::env::var("RDMA_CORE").unwrap_or_default();
    let libraries = format!("{root}/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let installed =
        fs::read_to_string(format!("{libraries}/pkgconfig/libibverbs.pc")).expect("libibverbs-dev");
    let (record, extent) = [(common::OLDEST, Extent::Oldest), (common::NEWEST, Extent::All)]
        .into_iter()
        .find(|(record, _)| installed.contains(&format!(".{}\n", record.version)))
        .unwrap_or_else(|| panic!("of no recorded version: {installed}"));
    let include = format!("-isystem{root}/usr/include");
    let printed = common::print_facts(&compiler, &[&include], &HEADERS, wanted(extent));
    let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines.dedup();
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        lines.extend(symbols(&format!("{libraries}/{library}")));
    }
    let head = format!(
        "# The C interface of rdma-core {} on {} Linux: sizes of structures, offsets of members,\n\
         # constants, symbols with their versions. Written by the test `write_the_record`.\n",
        record.version,
        std::env::consts::ARCH,
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/data/rdma-core-{}.txt", record.version));
    fs::write(path, head + &lines.join("\n") + "\n").unwrap();
}
