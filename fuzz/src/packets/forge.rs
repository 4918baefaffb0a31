//! Packets from the peers' side, mended to get past the adapter's first checks.

use std::net::IpAddr;

use roce_transport::{
    addr::{PKey, QKey, Qpn},
    mem::Region,
    psn::Psn,
    qp::QpType,
    wire::{
        AtomicEth, Bth, Ext, Feth, FrameFields, HEADERS_MAX, Headers, ICRC_LEN, Ident,
        InvalidateEth, NetHeader, Opcode, Operation, Packet, PacketPosition, ParseError, Reth,
        XrcEth, icrc, padding,
    },
};

use super::world::{MTU, Member, QKEY, REGION, World};
use crate::input::Input;

/// Fields to make valid.
#[derive(Clone, Copy)]
struct Mend(u8);

impl Mend {
    const ADDRESSES: u8 = 1;
    const OPCODE: u8 = 1 << 1;
    const PSN: u8 = 1 << 2;
    const KEYS: u8 = 1 << 3;
    const ICRC: u8 = 1 << 4;
    const ALL: u8 = 0x1F;

    /// Half of all bytes mend everything: any one fault hides all later checks.
    const fn from_control(control: u8) -> Self {
        Self(if control & 0x80 == 0 { Self::ALL } else { control })
    }

    const fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }
}

const TVER: u8 = 0x0F;
const PAD_COUNT: u8 = 0x30;

/// Input: fields to mend, origin, destination, PSN distance, region, number of words, words from
/// the BTH on.
pub(super) fn forge(world: &World, input: &mut Input<'_>) -> (NetHeader, Vec<u8>) {
    let [control, origin, to, distance, key, words] = input.array();
    let words = if words < 0xF0 { words & 0x3F } else { 64 + (words & 0x0F) };
    let raw = input.bytes(usize::from(words) * 4);
    let mend = Mend::from_control(control);
    let member = world.members[usize::from(to & 0x7F) % world.members.len()];
    let mut net = network(world, member, mend, origin);
    // to all datagram queue pairs
    let to_group = member.qp_type == QpType::Ud && to & 0x80 != 0;
    if to_group {
        net.dst = world.setup.group();
    }
    let mut body = if mend.has(Mend::OPCODE) {
        // a bit selects the payload that its place in a message needs
        let dest = if to_group { Qpn::MULTICAST } else { member.qpn };
        transport(world, member, dest, mend, [distance, key], raw, control & 0x40 == 0)
    } else {
        raw.to_vec()
    };
    if mend.has(Mend::ICRC) {
        let net = match net.ident {
            Ident::Likely(guess) => {
                NetHeader { ident: Ident::Known { id: guess ^ 1, dont_fragment: true }, ..net }
            }
            Ident::Known { .. } => net,
        };
        body.extend(icrc(&net, &body).to_le_bytes());
    }
    (net, body)
}

fn network(world: &World, member: Member, mend: Mend, origin: u8) -> NetHeader {
    let [own, peer] = world.setup.addresses();
    let (src, dst) = if mend.has(Mend::ADDRESSES) {
        (member.peer, own)
    } else {
        let pairs: [(IpAddr, IpAddr); 4] = [
            (peer, own),
            (own, peer),
            ([10, 9, 8, 7].into(), own),
            ([0xFD, 0, 0, 0, 0, 0, 0, 9].into(), [0; 8].into()),
        ];
        pairs[usize::from(origin & 3)]
    };
    let ident = if origin & 0x10 == 0 {
        Ident::Known { id: 0x4711, dont_fragment: true }
    } else {
        Ident::Likely(u16::from(origin))
    };
    NetHeader {
        src,
        dst,
        src_port: 0xC000,
        traffic_class: origin >> 2 & 3,
        hop_limit: 64,
        ident,
        frame: FrameFields::default(),
    }
}

fn transport(
    world: &World,
    member: Member,
    dest: Qpn,
    mend: Mend,
    [distance, key]: [u8; 2],
    raw: &[u8],
    fill: bool,
) -> Vec<u8> {
    let mut bytes = raw.to_vec();
    bytes.resize(bytes.len().max(Bth::LEN).next_multiple_of(4) + ICRC_LEN, 0);
    let opcode = known_opcode(member, bytes[0]);
    bytes[0] = opcode.to_wire();
    bytes[1] &= !TVER;
    let packet = loop {
        match Packet::parse(&bytes) {
            Ok(packet) => break packet,
            Err(ParseError::TooShort) => bytes.extend([0; 4]),
            Err(ParseError::Padding) => bytes[1] &= !PAD_COUNT,
            Err(error) => unreachable!("all else is right: {error}"),
        }
    };
    let mut payload = packet.payload.to_vec();
    if fill
        && matches!(opcode.operation().position(), PacketPosition::First | PacketPosition::Middle)
    {
        payload.resize(MTU.bytes() as usize, 0x5A);
    } else if fill && opcode.operation() == Operation::AtomicWrite {
        payload.resize(8, 0x5A);
    } else if fill
        && matches!(opcode.operation(), Operation::Flush | Operation::CmpSwap | Operation::FetchAdd)
    {
        payload.clear();
    }
    let mut bth = *packet.headers.bth();
    bth.dest_qp = dest;
    if mend.has(Mend::PSN) {
        bth.psn = psn_near(world, member, opcode, distance).unwrap_or(bth.psn);
    }
    let mut ext = *packet.headers.ext();
    if mend.has(Mend::KEYS) {
        bth.pkey = if bth.pkey.0 & 1 == 0 { PKey(0x7FFF) } else { PKey::DEFAULT };
        mend_keys(&mut ext, world, opcode, key, payload.len());
    }
    let xrceth = packet.headers.xrceth().map(|xrceth| match mend.has(Mend::KEYS) {
        true => {
            let is_foreign = key & 0x70 == 0x70;
            XrcEth { srq: if is_foreign { world.foreign_srq } else { world.xrc_srq } }
        }
        false => xrceth,
    });
    let headers =
        xrceth.map_or_else(|| Headers::new(bth, ext), |xrceth| Headers::xrc(bth, xrceth, ext));
    let headers = headers.expect("the headers are still the opcode's");
    let mut out = vec![0; HEADERS_MAX + payload.len() + padding(payload.len()) + ICRC_LEN];
    let length = Packet { headers, payload: &payload, icrc: 0 }.encode(&mut out);
    out.truncate(length - ICRC_LEN);
    out
}

/// The opcode of `byte` if the service has it, else another opcode of the service.
fn known_opcode(member: Member, byte: u8) -> Opcode {
    let service = (member.qp_type.service() as u8) << 5;
    let with_service = |byte: u8| Opcode::from_wire(byte & 0x1F | service);
    let own = Opcode::from_wire(byte)
        .filter(|opcode| opcode.to_wire() & 0xE0 == service || *opcode == Opcode::CNP);
    own.or_else(|| with_service(byte))
        .or_else(|| with_service(byte & 0x01 | 0x04))
        .unwrap_or(Opcode::CNP)
}

/// Mostly the next request, or a recent response.
fn psn_near(world: &World, member: Member, opcode: Opcode, distance: u8) -> Option<Psn> {
    let info = world.adapter.query_qp(member.qpn)?;
    let near = |psn: Psn| psn.plus(u32::from(distance & 0x3F).wrapping_sub(32));
    Some(match (opcode.operation().is_response(), distance < 0xC0) {
        (false, true) => info.rq_psn,
        (false, false) => near(info.rq_psn),
        (true, true) => info.sq_psn.plus(u32::from(distance & 0x1F).wrapping_neg()).previous(),
        (true, false) => near(info.sq_psn),
    })
}

fn mend_keys(ext: &mut Ext, world: &World, opcode: Opcode, key: u8, payload: usize) {
    let region: &Region =
        [&world.open, &world.open, &world.readable, &world.private, &world.foreign]
            [usize::from(key & 7) % 5];
    let fits = key & 0x80 == 0;
    // or a window, bound or not
    let (region, rkey) = match key & 0x40 {
        0 => (region, region.rkey()),
        _ => (&*world.windowed, world.windows[usize::from(key & 7) % 3]),
    };
    let address =
        |address: u64| region.address() + address % if fits { REGION / 2 } else { REGION + 64 };
    match ext {
        Ext::Reth(reth) | Ext::RethImm(reth, _) | Ext::FethReth(_, reth) => {
            let word = opcode.operation() == Operation::AtomicWrite && fits;
            let carries = opcode.operation().position().ends() && payload > 0;
            *reth = Reth {
                virtual_address: address(reth.virtual_address) & if word { !7 } else { !0 },
                rkey,
                dma_length: match (fits, carries) {
                    (true, true) => payload as u32,
                    (true, false) => reth.dma_length % (REGION as u32 / 2),
                    (false, _) => reth.dma_length % (REGION as u32 * 2),
                },
            };
        }
        Ext::Atomic(atomic) => {
            let aligned = if fits { !7 } else { !0 };
            *atomic = AtomicEth {
                virtual_address: address(atomic.virtual_address) & aligned,
                rkey,
                ..*atomic
            };
        }
        Ext::Ieth(ieth) => *ieth = InvalidateEth(rkey),
        Ext::Deth(deth) | Ext::DethImm(deth, _) => deth.qkey = if fits { QKEY } else { QKey::GSI },
        _ => {}
    }
    if let Ext::FethReth(feth, _) = ext
        && fits
    {
        *feth = Feth { placement: 1, selectivity: feth.selectivity & 1 };
    }
}
