use roce_conformance::subject::Program;
use roce_transport::mem::Access;

use super::{
    ADDRESS, Row, address,
    device::{Fault, psn},
    has_reth,
};

pub(super) fn windows() -> Vec<Row> {
    use Fault::{Bind, Connect, In, KeepsWindows, Register};
    vec![
        // like rxe
        (
            "checks the region's bounds in a window",
            "window/past-end-type-2-write-only",
            Bind(|bind| bind.bytes = 2048),
        ),
        (
            "begins a window at the region's start",
            "window/before-start-type-1-read-request",
            In(|notes, _, p| {
                let window = notes.regions.get("w");
                if let Some(window) = window.filter(|w| has_reth(p) && address(p) < w.address) {
                    p[ADDRESS].copy_from_slice(&window.address.to_be_bytes());
                }
                true
            }),
        ),
        (
            "gives windows the rights of their region",
            "window/without-write-type-1",
            Bind(|bind| bind.rights |= Access::REMOTE_WRITE),
        ),
        (
            "lets windows open their region",
            "window/opens-nothing-else-type-2",
            Register(|rights| {
                if rights.contains(Access::MW_BIND) {
                    rights | Access::REMOTE_WRITE
                } else {
                    rights
                }
            }),
        ),
        (
            "flushes shared requests when a queue pair stops",
            "shared/stays",
            Connect(|connection| connection.shared = false),
        ),
        ("has no windows of type 1", "window/moved", Bind(|bind| bind.is_type_2 = true)),
        ("has no windows of type 2", "window/bound-twice", Bind(|bind| bind.is_type_2 = false)),
        ("invalidates nothing", "window/invalidated", KeepsWindows),
        (
            "takes a SEND with Invalidate for a SEND",
            "window/invalidated-by-peer",
            In(|_, _, p| {
                if p[0] == 0x17 {
                    p[0] = 0x04;
                    p.drain(12..16);
                }
                true
            }),
        ),
        (
            "binds any region",
            "window/region-without-right",
            Register(|rights| rights | Access::MW_BIND),
        ),
        (
            "lets windows write where their owner may not",
            "window/needs-local-write",
            Register(|rights| rights | Access::LOCAL_WRITE),
        ),
    ]
}

pub(super) fn placement() -> Vec<Row> {
    use Fault::{In, Memory, Out, Raw, Register};
    vec![
        ("does not know FLUSH", "flush/range", In(|_, _, p| p[0] != 0x1C)),
        ("does not know atomic WRITE", "flush/write", In(|_, _, p| p[0] != 0x1D)),
        (
            // like rxe
            "has another ICRC in a FLUSH",
            "flush/posted",
            Raw(|_, _, p| {
                let end = p.len();
                p[end - 1] ^= u8::from(p[0] == 0x1C);
                true
            }),
        ),
        ("answers a FLUSH once", "flush/again", In(|notes, _, p| p[0] != 0x1C || !notes.again(p))),
        (
            // like rxe
            "repeats a FLUSH with another address",
            "flush/posted-again",
            Out(|notes, _, p| {
                if p[0] == 0x1C && notes.sent.contains(&psn(p)) {
                    p[16..24].fill(0);
                }
                true
            }),
        ),
        (
            "lets everyone flush",
            "flush/region-without-flush",
            Register(|rights| rights | Access::FLUSH_GLOBAL),
        ),
        (
            "promises what it cannot keep",
            "flush/other-placement",
            In(|_, _, p| {
                if p[0] == 0x1C {
                    p[15] = p[15] & 0xF0 | 1;
                }
                true
            }),
        ),
        (
            "looks at the range of a FLUSH of all",
            "flush/whole-region",
            In(|_, _, p| {
                if p[0] == 0x1C {
                    p[15] &= 0x0F;
                }
                true
            }),
        ),
        (
            "carries an atomic WRITE out again",
            "flush/write-again",
            Memory(|notes, p, device| {
                if p[0] == 0x1D && notes.again(p) {
                    let _ = device.set_word("target", 0, 7);
                }
            }),
        ),
        (
            "aligns the address of an atomic WRITE",
            "flush/write-not-aligned",
            In(|_, _, p| {
                if p[0] == 0x1D {
                    p[19] &= 0xF8;
                }
                true
            }),
        ),
    ]
}
