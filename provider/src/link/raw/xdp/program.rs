//! The XDP program: RoCE packets for the device go to its socket, everything else to the kernel.
//!
//! See RFC 9669 (instructions) and `linux/bpf.h` (functions, `struct xdp_md`).

use std::{mem, net::IpAddr};

use roce_transport::addr::{Gid, ROCE_UDP_PORT};

use roce_ethernet::{MacAddr, StationConfig};

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// `XDP_PASS`.
const PASS: i32 = 2;

const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
/// A 64-bit value in two instructions; source 1: a map, by its descriptor.
const LOAD_VALUE: u8 = 0x18;
const IS_MAP: u8 = 1;
const COPY: u8 = 0xBF;
const SET: u8 = 0xB7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP: u8 = 0x05;
const JUMP_GREATER_REGISTER: u8 = 0x2D;
// of the lower 32 bits
const JUMP_UNEQUAL: u8 = 0x56;
const JUMP_GREATER: u8 = 0x26;

/// `bpf_redirect_map`, `bpf_xdp_get_buff_len`.
const REDIRECT: i32 = 51;
const FRAME_LENGTH: i32 = 188;

/// Offsets in `struct xdp_md`; start and end are of a frame's first part.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

#[derive(Clone, Copy)]
struct R(u8);

const CONTEXT: R = R(1);
const FRAME: R = R(2);
const END: R = R(3);
const VALUE: R = R(4);
const KEPT_CONTEXT: R = R(6);
const KEPT_QUEUE: R = R(9);
const RESULT: R = R(0);

#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    /// Jumps that pass the frame to the kernel, and jumps that take it.
    passes: Vec<usize>,
    takes: Vec<usize>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: R, from: R, offset: i16, value: i32) {
        // C bit fields follow the processor's byte order.
        let registers =
            if cfg!(target_endian = "little") { to.0 | from.0 << 4 } else { to.0 << 4 | from.0 };
        self.code.push(Instruction { code, registers, offset, value });
    }

    fn load(&mut self, code: u8, to: R, from: R, offset: usize) {
        self.put(code, to, from, offset as i16, 0);
    }

    fn compute(&mut self, code: u8, to: R, value: i32) {
        self.put(code, to, RESULT, 0, value);
    }

    fn combine(&mut self, code: u8, to: R, from: R) {
        self.put(code, to, from, 0, 0);
    }

    /// Returns the jump's place. [`land`](Self::land) sets its target.
    fn jump(&mut self, code: u8, of: R, value: i32) -> usize {
        self.compute(code, of, value);
        self.code.len() - 1
    }

    /// Makes jumps lead to the next instruction.
    fn land(&mut self, jumps: impl IntoIterator<Item = usize>) {
        for at in jumps {
            self.code[at].offset = (self.code.len() - at - 1) as i16;
        }
    }

    /// Takes frames of an Ethernet type, in `VALUE`, that the checks do not pass.
    fn take(&mut self, ethertype: u16, checks: impl FnOnce(&mut Self)) {
        let other = self.jump(JUMP_UNEQUAL, VALUE, half(ethertype.to_be_bytes()));
        checks(self);
        let taken = self.jump(JUMP, RESULT, 0);
        self.takes.push(taken);
        self.land([other]);
    }

    /// Passes the frame on a condition.
    fn pass_if(&mut self, code: u8, of: R, value: i32) {
        let jump = self.jump(code, of, value);
        self.passes.push(jump);
    }

    fn pass_if_greater(&mut self, of: R, other: R) {
        self.passes.push(self.code.len());
        self.combine(JUMP_GREATER_REGISTER, of, other);
    }

    /// Passes frames under `length` bytes.
    fn need(&mut self, length: usize) {
        self.combine(COPY, VALUE, FRAME);
        self.compute(ADD, VALUE, length as i32);
        self.pass_if_greater(VALUE, END);
    }

    /// Passes frames with other bytes at `at`.
    fn need_half(&mut self, at: usize, bytes: [u8; 2]) {
        self.load(LOAD_HALF, VALUE, FRAME, at);
        self.pass_if(JUMP_UNEQUAL, VALUE, half(bytes));
    }

    fn need_byte(&mut self, at: usize, byte: u8) {
        self.load(LOAD_BYTE, VALUE, FRAME, at);
        self.pass_if(JUMP_UNEQUAL, VALUE, byte.into());
    }

    /// Passes frames to other addresses.
    fn need_address<const N: usize>(&mut self, at: usize, addresses: &[[u8; N]]) {
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for address in addresses {
            self.land(mem::take(&mut other));
            for (word, bytes) in address.as_chunks::<4>().0.iter().enumerate() {
                self.load(LOAD_WORD, VALUE, FRAME, at + word * 4);
                other.push(self.jump(JUMP_UNEQUAL, VALUE, i32::from_ne_bytes(*bytes)));
            }
            own.push(self.jump(JUMP, RESULT, 0));
        }
        self.passes.extend(other);
        self.land(own);
    }
}

fn half(bytes: [u8; 2]) -> i32 {
    u16::from_ne_bytes(bytes).into()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameLimits {
    /// Longer frames are merged or uncut runs.
    pub(super) max_len: usize,
    pub(super) multi_buffer: bool,
    /// Frames may be uncut runs, unmarked except by their nonzero, incomplete UDP checksum.
    pub(super) gso: bool,
}

/// Takes RoCE packets to the station's MAC address, VLAN and IP addresses, or to any IPv4 address
/// with DHCP: the lease may change. RoCE is UDP to port 4791 without fragmentation, options and
/// extension headers, or RoCE v1 if enabled. The kernel and the packet socket get the rest (ARP,
/// multicast), which others on this host need.
///
/// IP lengths are unchecked: the station drops packets that exceed them.
pub(super) fn of(config: &StationConfig, frames: FrameLimits, map: i32) -> Vec<Instruction> {
    let (mut v4, mut v6, mut gids) = (Vec::new(), Vec::new(), Vec::new());
    for own in &config.addresses {
        match own.address {
            IpAddr::V4(address) => v4.push(address.octets()),
            IpAddr::V6(address) => v6.push(address.octets()),
        }
        gids.push(Gid::from(own.address).0);
    }
    let ip = if config.vlan.is_some() { 18 } else { 14 };
    let mut program = Assembler::default();
    begin(&mut program, frames);
    program.need(ip + 20);
    let MacAddr(a, b, c, d, e, f) = config.mac;
    program.load(LOAD_WORD, VALUE, FRAME, 0);
    program.pass_if(JUMP_UNEQUAL, VALUE, i32::from_ne_bytes([a, b, c, d]));
    program.need_half(4, [e, f]);
    if let Some(vlan) = config.vlan {
        program.need_half(12, [0x81, 0]);
        program.load(LOAD_HALF, VALUE, FRAME, 14);
        program.compute(AND, VALUE, half([0x0F, 0xFF]));
        program.pass_if(JUMP_UNEQUAL, VALUE, half(vlan.id.to_be_bytes()));
    }
    program.load(LOAD_HALF, VALUE, FRAME, ip - 2);
    let leases = config.dhcp.is_some();
    if !v4.is_empty() || leases {
        program.take(0x0800, |program| {
            ipv4(program, ip, (!leases).then_some(&v4), frames);
        });
    }
    if !v6.is_empty() {
        program.take(0x86DD, |program| {
            program.need(ip + 48);
            program.need_byte(ip + 6, 17);
            program.need_address(ip + 24, &v6);
            udp(program, ip + 40, frames);
        });
    }
    if config.roce_v1 && (!gids.is_empty() || leases) {
        program.take(0x8915, |program| {
            program.need(ip + 40);
            program.need_byte(ip + 6, 27);
            if !leases {
                program.need_address(ip + 24, &gids);
            }
        });
    }
    end(program, map)
}

/// Loads the frame's bounds and passes long frames.
fn begin(program: &mut Assembler, frames: FrameLimits) {
    program.put(LOAD_WORD, KEPT_QUEUE, CONTEXT, QUEUE, 0);
    if frames.multi_buffer {
        program.combine(COPY, KEPT_CONTEXT, CONTEXT);
        program.compute(CALL, RESULT, FRAME_LENGTH);
        program.pass_if(JUMP_GREATER, RESULT, frames.max_len as i32);
        program.combine(COPY, CONTEXT, KEPT_CONTEXT);
    }
    program.put(LOAD_WORD, FRAME, CONTEXT, DATA, 0);
    program.put(LOAD_WORD, END, CONTEXT, DATA_END, 0);
    if !frames.multi_buffer {
        // Only CAP_PERFMON may subtract addresses.
        program.combine(COPY, VALUE, FRAME);
        program.compute(ADD, VALUE, frames.max_len as i32);
        program.pass_if_greater(END, VALUE);
    }
}

/// Unfragmented UDP without options to these addresses; `None`: to any.
fn ipv4(program: &mut Assembler, ip: usize, addresses: Option<&Vec<[u8; 4]>>, frames: FrameLimits) {
    program.need_byte(ip + 9, 17);
    program.load(LOAD_HALF, VALUE, FRAME, ip + 6);
    program.compute(AND, VALUE, half([0x3F, 0xFF]));
    program.pass_if(JUMP_UNEQUAL, VALUE, 0);
    if let Some(addresses) = addresses {
        program.need_address(ip + 16, addresses);
    }
    // Options would need a computed address, which requires CAP_PERFMON.
    program.need_byte(ip, 0x45);
    program.need(ip + 28);
    udp(program, ip + 20, frames);
}

fn udp(program: &mut Assembler, udp: usize, frames: FrameLimits) {
    program.need_half(udp + 2, ROCE_UDP_PORT.to_be_bytes());
    if frames.gso {
        program.need_half(udp + 6, [0, 0]);
    }
}

fn end(mut program: Assembler, map: i32) -> Vec<Instruction> {
    program.pass_if(JUMP, RESULT, 0);
    let [takes, passes] = [&mut program.takes, &mut program.passes].map(mem::take);
    program.land(takes);
    program.put(LOAD_VALUE, CONTEXT, R(IS_MAP), 0, map);
    program.put(0, RESULT, RESULT, 0, 0);
    program.combine(COPY, FRAME, KEPT_QUEUE);
    // Without a socket in the map, as on other queues, the kernel gets the frame.
    program.compute(SET, END, PASS);
    program.compute(CALL, RESULT, REDIRECT);
    program.put(EXIT, RESULT, RESULT, 0, 0);
    program.land(passes);
    program.compute(SET, RESULT, PASS);
    program.put(EXIT, RESULT, RESULT, 0, 0);
    program.code
}

#[cfg(test)]
mod tests;
