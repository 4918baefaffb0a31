use std::{collections::BTreeMap, ops::Range};

use roce_transport::{
    addr::{PKey, QKey, Qpn},
    defaults,
    psn::{Msn, Psn},
    wire::{
        Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ext, Extension, Feth, FrameFields, HEADERS_MAX,
        Headers, ICRC_LEN, Ident, Immediate, InvalidateEth, NetHeader, Opcode, Operation,
        Packet as Wire, Reth, Service, Syndrome, icrc, padding, verify_icrc,
    },
};

use crate::{
    case::{Field, Key, PEER_ADDRESS, PEER_KEY, Packet, PacketKind, WRONG_KEY, group, pattern},
    dialog::{self, Dialog},
    subject::{Arrival, RemoteRegion, Route},
};

#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) route: Route,
    pub(crate) service: Service,
    pub(crate) own: Qpn,
    pub(crate) device: Qpn,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) qkey: u32,
    pub(crate) regions: &'a BTreeMap<String, RemoteRegion>,
}

const PEER: &str = "peer";

impl Scene<'_> {
    fn opcode(&self, kind: PacketKind) -> Option<Opcode> {
        match kind {
            PacketKind::Operation(operation) => Opcode::new(self.service, operation),
            PacketKind::Cnp => Some(Opcode::CNP),
            PacketKind::Message(_) => Opcode::new(Service::Ud, Operation::SendOnly),
        }
    }

    fn region(&self, name: &str) -> Result<RemoteRegion, String> {
        if name == PEER {
            return Ok(RemoteRegion { address: PEER_ADDRESS, rkey: PEER_KEY });
        }
        self.regions.get(name).copied().ok_or_else(|| format!("unknown region {name}"))
    }

    /// The PSN of ACK, NAK and other responses counts from the requester's first.
    const fn base(&self, packet: &Packet, from_device: bool) -> u32 {
        match packet.operation {
            PacketKind::Operation(it) if it.is_response() == from_device => self.rq_psn,
            PacketKind::Operation(_) => self.sq_psn,
            PacketKind::Cnp | PacketKind::Message(_) => 0, // no direction
        }
    }

    fn psn(&self, packet: &Packet, from_device: bool, relative: i32) -> Psn {
        Psn::new(self.base(packet, from_device).wrapping_add_signed(relative) & 0x00FF_FFFF)
    }

    /// `mad`: the MAD of a CM message.
    pub(crate) fn build(
        &self,
        packet: &Packet,
        mad: Option<Vec<u8>>,
    ) -> Result<(NetHeader, Vec<u8>), String> {
        let opcode = self
            .opcode(packet.operation)
            .ok_or("the service of the queue pair has no such packet")?;
        let mut net = NetHeader {
            src: self.route.own,
            dst: self.route.device,
            src_port: self.route.src_port,
            traffic_class: 0,
            hop_limit: 64,
            ident: Ident::Known { id: self.route.id, dont_fragment: true },
            frame: FrameFields::default(),
        };
        let mut bth = Bth::new(opcode, self.device, Psn::new(0));
        let mut payload = Vec::new();
        let deth = Deth { qkey: QKey(self.qkey), source_qp: self.own };
        let mut fields = HeaderFields { deth, ..HeaderFields::default() };
        if let Some(mad) = mad {
            bth.dest_qp = Qpn::GSI;
            payload = mad;
            fields.deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
        }
        for field in &packet.fields {
            match *field {
                Field::Psn(relative) => bth.psn = self.psn(packet, false, relative),
                Field::AckReq(set) => bth.ack_req = set,
                Field::Solicited(set) => bth.solicited = set,
                Field::MigReq(set) => bth.mig_req = set,
                Field::PKey(pkey) => bth.pkey = PKey(pkey),
                Field::Fecn(set) => bth.fecn = set,
                Field::Becn(set) => bth.becn = set,
                Field::Qp(qpn) => bth.dest_qp = Qpn::new(qpn),
                Field::Data { bytes, seed } => payload = pattern(seed, bytes),
                Field::TrafficClass(class) => net.traffic_class = class,
                Field::HopLimit(limit) => net.hop_limit = limit,
                Field::SourcePort(port) => net.src_port = port,
                Field::Group(number) => {
                    // No router forwards it.
                    (net.dst, net.hop_limit) = (group(number, self.route.device), 1);
                    bth.dest_qp = Qpn::MULTICAST;
                }
                Field::Target { ref region, offset } => {
                    let RemoteRegion { address, rkey } = self.region(region)?;
                    fields.reth.virtual_address = address.wrapping_add_signed(offset);
                    fields.reth.rkey.0 = rkey;
                }
                Field::Key(key) => {
                    let rkey = &mut fields.reth.rkey.0;
                    match key {
                        Key::Exact(key) => *rkey = key,
                        Key::Wrong => *rkey ^= WRONG_KEY,
                        Key::Old => *rkey ^= 1,
                    }
                }
                Field::Length(length) => fields.length = Some(length),
                Field::Positive => fields.aeth.syndrome = Syndrome::ACK,
                Field::Refused => fields.aeth.syndrome = Syndrome::from_wire(0x62),
                Field::NotReady => fields.aeth.syndrome = Syndrome::RnrNak { timer: 1 },
                Field::Syndrome(byte) => fields.aeth.syndrome = Syndrome::from_wire(byte),
                Field::Msn(msn) => fields.aeth.msn = Msn::new(msn),
                Field::Immediate(immediate) => fields.immediate = immediate,
                Field::Swap(value) => fields.swap = value,
                Field::Compare(value) => fields.compare = value,
                Field::Found(value) => fields.found = value,
                Field::Placement(types) => fields.feth.placement = types,
                Field::Selectivity(level) => fields.feth.selectivity = level,
                Field::QKey(qkey) => fields.deth.qkey.0 = qkey,
                _ => {} // set in the bytes or the MAD
            }
        }
        let length = payload.len() as u32;
        if opcode == Opcode::CNP {
            payload = vec![0; 16]; // reserved (A17.9.3)
        }
        let headers = Headers::new(bth, fields.ext(opcode.extension(), length))
            .ok_or("this operation needs a header that cases do not have")?;
        let mut bytes = vec![0; HEADERS_MAX + payload.len() + 3 + ICRC_LEN];
        let encoded = Wire { headers, payload: &payload, icrc: 0 }.encode(&mut bytes);
        bytes.truncate(encoded - ICRC_LEN);
        damage(&mut bytes, packet, padding(payload.len()));
        let mut check = icrc(&net, &bytes).to_le_bytes();
        for field in &packet.fields {
            match field {
                Field::WrongIcrc => check[0] ^= 0xFF,
                Field::SwappedIcrc => check.reverse(),
                _ => {}
            }
        }
        bytes.extend(check);
        Ok((net, bytes))
    }

    /// `Err`: difference from the expected packet.
    pub(crate) fn check(&self, packet: &Packet, arrival: &Arrival) -> Result<(), String> {
        let wire = sound(arrival)?;
        let (bth, ext) = (wire.headers.bth(), wire.headers.ext());
        let own = match packet.operation {
            PacketKind::Message(_) => Qpn::GSI,
            _ => self.own,
        };
        if bth.dest_qp != own {
            return Err(format!("it goes to queue pair {}, not {own}", bth.dest_qp));
        }
        if Some(bth.opcode) != self.opcode(packet.operation) {
            return Err(format!("it is {}", bth.opcode));
        }
        let fields = HeaderFields::of(ext);
        if own == Qpn::GSI {
            is("the Q_Key", fields.deth.qkey.0, QKey::GSI.0)?;
            is("the source queue pair", fields.deth.source_qp.get(), Qpn::GSI.get())?;
        }
        for field in &packet.fields {
            match *field {
                Field::Psn(relative) => {
                    let right = self.psn(packet, true, relative);
                    let first = self.base(packet, true);
                    let found = i64::from(bth.psn.get()) - i64::from(first);
                    if bth.psn != right {
                        let found = (found + (1 << 23)).rem_euclid(1 << 24) - (1 << 23);
                        return Err(format!("its PSN is {found}, expected {relative}"));
                    }
                }
                Field::AckReq(set) => is("AckReq", bth.ack_req, set)?,
                Field::Solicited(set) => is("SE", bth.solicited, set)?,
                Field::MigReq(set) => is("MigReq", bth.mig_req, set)?,
                Field::PKey(pkey) => is("the P_Key", bth.pkey.0, pkey)?,
                Field::Fecn(set) => is("FECN", bth.fecn, set)?,
                Field::Becn(set) => is("BECN", bth.becn, set)?,
                Field::Qp(qpn) => is("the queue pair", bth.dest_qp.get(), qpn)?,
                Field::Data { bytes, seed } => {
                    is("the length of the payload", wire.payload.len() as u64, bytes)?;
                    if wire.payload != pattern(seed, bytes) {
                        return Err("its payload has wrong bytes".into());
                    }
                }
                Field::Target { ref region, offset } => {
                    let RemoteRegion { address, rkey } = self.region(region)?;
                    let Reth { virtual_address: found, rkey: key, .. } = fields.reth;
                    is("the address", found, address.wrapping_add_signed(offset))?;
                    is("the R_Key", key.0, rkey)?;
                }
                Field::Length(length) => is("the length", fields.length.unwrap_or(0), length)?,
                Field::Positive if matches!(fields.aeth.syndrome, Syndrome::Ack { .. }) => {}
                Field::Refused if matches!(fields.aeth.syndrome.to_wire(), 0x61..=0x63) => {}
                Field::NotReady if matches!(fields.aeth.syndrome, Syndrome::RnrNak { .. }) => {}
                Field::Positive | Field::Refused | Field::NotReady => {
                    return Err(format!("it says {}", fields.aeth.syndrome));
                }
                Field::Syndrome(byte) if fields.aeth.syndrome.to_wire() == byte => {}
                Field::Syndrome(byte) => {
                    let right = Syndrome::from_wire(byte);
                    return Err(format!("it says {}, expected {right}", fields.aeth.syndrome));
                }
                Field::Msn(msn) => is("the MSN", fields.aeth.msn.get(), msn)?,
                Field::Immediate(value) => is("the immediate data", fields.immediate, value)?,
                Field::Swap(value) => is("swap or add", fields.swap, value)?,
                Field::Compare(value) => is("compare", fields.compare, value)?,
                Field::Found(value) => is("the value found", fields.found, value)?,
                Field::Placement(types) => is("the placement", fields.feth.placement, types)?,
                Field::Selectivity(level) => {
                    is("the selectivity level", fields.feth.selectivity, level)?;
                }
                Field::QKey(qkey) => is("the Q_Key", fields.deth.qkey.0, qkey)?,
                Field::Opcode(byte) => is("the opcode", bth.opcode.to_wire(), byte)?,
                Field::TrafficClass(class) => {
                    is("the traffic class", arrival.net.traffic_class, class)?;
                }
                _ => {} // not in `expect`, or checked by the dialog
            }
        }
        Ok(())
    }
}

fn is(what: &str, found: impl Into<u64>, expected: impl Into<u64>) -> Result<(), String> {
    let (found, expected) = (found.into(), expected.into());
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} is {found:#x}, expected {expected:#x}"))
}

/// Faults between BTH and ICRC.
fn damage(bytes: &mut Vec<u8>, packet: &Packet, pad: usize) {
    for field in &packet.fields {
        match *field {
            Field::Opcode(byte) => bytes[0] = byte,
            Field::Version(version) => bytes[1] = bytes[1] & 0xF0 | version & 0x0F,
            Field::Pad(pad) => bytes[1] = bytes[1] & 0xCF | (pad & 3) << 4,
            Field::Reserved => {
                bytes[4] |= 0x3F;
                bytes[8] |= 0x7F;
            }
            Field::DirtyPadding => {
                let end = bytes.len();
                bytes[end - pad..].fill(0xFF);
            }
            Field::Cut(count) => bytes.truncate(bytes.len().saturating_sub(count as usize)),
            Field::Extra(count) => bytes.resize(bytes.len() + count as usize, 0),
            _ => {}
        }
    }
}

/// Checks of each received packet.
fn sound(arrival: &Arrival) -> Result<Wire<'_>, String> {
    let wire = Wire::parse(&arrival.bytes).map_err(|error| format!("it is no packet: {error}"))?;
    let bth = wire.headers.bth();
    let body = &arrival.bytes[..arrival.bytes.len() - ICRC_LEN];
    // An adapter also accepts rxe's ICRC of a FLUSH.
    let is_right = verify_icrc(&arrival.net, &arrival.bytes)
        .is_some_and(|found| icrc(&found.identify(&arrival.net), body) == wire.icrc);
    if !is_right {
        return Err(format!("the ICRC of its {} is wrong", bth.opcode));
    }
    if !bth.pkey.matches(PKey::DEFAULT) {
        return Err(format!("the P_Key of its {} is {:#06x}", bth.opcode, bth.pkey.0));
    }
    if body[body.len() - padding(wire.payload.len())..].iter().any(|&byte| byte != 0) {
        return Err(format!("the padding of its {} is not zero", bth.opcode));
    }
    if arrival.bytes[8] & 0x7F != 0 || arrival.bytes[4] & 0x3F != 0 {
        return Err(format!("reserved bits of its {} are not zero", bth.opcode));
    }
    Ok(wire)
}

pub(crate) struct Request {
    pub(crate) psn: u32,
    pub(crate) ends: bool,
    /// Payload size.
    pub(crate) bytes: usize,
    pub(crate) read: Option<Reth>,
}

impl Request {
    /// A READ takes as many PSNs as its response has packets.
    pub(crate) fn psns(&self, mtu: u32) -> u32 {
        self.read.map_or(1, |read| read.dma_length.div_ceil(mtu).max(1))
    }
}

pub(crate) fn request(arrival: &Arrival) -> Result<Request, String> {
    let wire = sound(arrival)?;
    let bth = wire.headers.bth();
    let operation = bth.opcode.operation();
    if bth.opcode == Opcode::CNP || operation.is_response() {
        return Err("it is no request".into());
    }
    Ok(Request {
        psn: bth.psn.get(),
        ends: operation.position().ends(),
        bytes: wire.payload.len(),
        read: wire.headers.ext().reth().filter(|_| operation == Operation::ReadRequest),
    })
}

pub(crate) fn is_cnp(arrival: &Arrival) -> bool {
    arrival.bytes.first() == Some(&Opcode::CNP.to_wire())
}

pub(crate) fn destination(arrival: &Arrival) -> Option<Qpn> {
    let wire = Wire::parse(&arrival.bytes).ok()?;
    Some(wire.headers.bth().dest_qp).filter(|&to| to != Qpn::GSI)
}

pub(crate) fn describe(arrival: &Arrival) -> String {
    match Wire::parse(&arrival.bytes) {
        Ok(wire) => {
            let bth = wire.headers.bth();
            if let Some(text) = dialog::text(bth.dest_qp, wire.payload) {
                return text;
            }
            let syndrome = wire.headers.ext().aeth().map(|aeth| format!(", {}", aeth.syndrome));
            format!("{} of PSN {:#x}{}", bth.opcode, bth.psn.get(), syndrome.unwrap_or_default())
        }
        Err(error) => format!("{} bytes that are no packet: {error}", arrival.bytes.len()),
    }
}

/// Payload to queue pair 1.
pub(crate) fn management(arrival: &Arrival) -> Option<&[u8]> {
    let wire = Wire::parse(&arrival.bytes).ok()?;
    (wire.headers.bth().dest_qp == Qpn::GSI).then_some(wire.payload)
}

/// True if unrelated to these queue pairs and CM messages.
pub(crate) fn is_foreign(arrival: &Arrival, own: &Range<u32>, dialog: Option<&Dialog>) -> bool {
    match (management(arrival), dialog) {
        (Some(payload), Some(dialog)) => dialog.is_foreign(payload),
        _ => Wire::parse(&arrival.bytes)
            .is_ok_and(|wire| !own.contains(&wire.headers.bth().dest_qp.get())),
    }
}

defaults! {
    #[derive(Clone, Copy, Debug)]
    HeaderFields {
        reth: Reth = Reth::default();
        length: Option<u32> = None;
        aeth: Aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::new(0) };
        immediate: u32 = 0;
        swap: u64 = 0;
        compare: u64 = 0;
        found: u64 = 0;
        feth: Feth = Feth { placement: 1, selectivity: 0 };
        deth: Deth = Deth { qkey: QKey(0), source_qp: Qpn::new(0) };
    }
}

impl HeaderFields {
    fn ext(&self, extension: Extension, payload: u32) -> Ext {
        let Self { reth, aeth, deth, .. } = *self;
        let reth = Reth { dma_length: self.length.unwrap_or(payload), ..reth };
        let immediate = Immediate(self.immediate.to_be_bytes());
        match extension {
            Extension::None => Ext::None,
            Extension::Imm => Ext::Imm(immediate),
            Extension::Ieth => Ext::Ieth(InvalidateEth(reth.rkey)),
            Extension::Reth => Ext::Reth(reth),
            Extension::RethImm => Ext::RethImm(reth, immediate),
            Extension::Aeth => Ext::Aeth(aeth),
            Extension::AethAtomicAck => Ext::AethAtomicAck(aeth, AtomicAckEth(self.found)),
            Extension::Atomic => Ext::Atomic(AtomicEth {
                virtual_address: reth.virtual_address,
                rkey: reth.rkey,
                swap_or_add: self.swap,
                compare: self.compare,
            }),
            Extension::FethReth => Ext::FethReth(self.feth, reth),
            Extension::Deth => Ext::Deth(deth),
            Extension::DethImm => Ext::DethImm(deth, immediate),
        }
    }

    fn of(ext: &Ext) -> Self {
        let mut fields = Self::default();
        fields.reth = ext.reth().unwrap_or(fields.reth);
        fields.length = Some(fields.reth.dma_length);
        fields.aeth = ext.aeth().unwrap_or(fields.aeth);
        if let Some(immediate) = ext.immediate() {
            fields.immediate = u32::from_be_bytes(immediate.0);
        }
        match *ext {
            Ext::Atomic(atomic) => {
                fields.reth.virtual_address = atomic.virtual_address;
                fields.reth.rkey = atomic.rkey;
                (fields.swap, fields.compare) = (atomic.swap_or_add, atomic.compare);
            }
            Ext::AethAtomicAck(_, found) => fields.found = found.0,
            Ext::FethReth(feth, _) => fields.feth = feth,
            Ext::Deth(deth) | Ext::DethImm(deth, _) => fields.deth = deth,
            Ext::Ieth(key) => fields.reth.rkey = key.0,
            _ => {}
        }
        fields
    }
}
