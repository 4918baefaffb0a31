use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use roce_transport::{
    addr::{Mtu, Qpn},
    cm::{CmMad, Message},
    event::DropReason,
    wire::{Headers, NakCode, Operation, Packet, PacketPosition, Service, Syndrome},
};

use crate::comment;

use super::{
    connection::Connection,
    end::Span,
    explained::{Explained, ExplainedPacket},
    file::Frame,
    finding::{Finding, FindingKind},
    flow::{self, Flow},
    frame::{self, NoPacket},
    icrc::{Excused, Icrcs},
    pairing::Pairs,
    placing::{place, set_mtus},
    reason::{Cause, Explanation},
    talk::Talk,
};

#[derive(Default)]
pub(super) struct Analysis {
    packets: Vec<ExplainedPacket>,
    findings: Vec<Finding>,
    frames: usize,
    other_frames: usize,
    fragments: usize,
    icrcs: Icrcs,
}

impl Analysis {
    pub(super) fn take(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        let captured = match frame::packet(frame) {
            Ok(captured) => captured,
            Err(NoPacket::Fragment) => {
                self.fragments += 1;
                return;
            }
            Err(NoPacket::Other) => {
                self.other_frames += 1;
                return;
            }
        };
        let number = self.frames;
        let parsed = Packet::parse(&captured.bytes);
        let mut packet = ExplainedPacket {
            frame: number,
            at: frame.at,
            net: captured.net,
            headers: None,
            payload: 0,
            message: None,
            truncated: captured.truncated,
            wrong_icrc: false,
            sender_qp: frame.comment.and_then(comment::sender),
            connection: None,
            from_second: false,
            why: Explanation::Unreadable,
            requesters: [None; 2],
        };
        match parsed {
            Ok(parsed) => {
                packet.headers = Some(parsed.headers);
                packet.payload = parsed.payload.len();
                let is_mad = parsed.headers.bth().dest_qp == Qpn::GSI && !captured.truncated;
                packet.message =
                    is_mad.then(|| CmMad::parse(parsed.payload).ok().map(Box::new)).flatten();
                if let Some(icrc) = captured.icrc {
                    packet.wrong_icrc = !icrc.is_right;
                    let way = (captured.net.src(), captured.net.dst());
                    self.icrcs.add(self.packets.len(), way, icrc);
                }
            }
            Err(error) => {
                let kind = FindingKind::Unreadable(DropReason::from(error));
                self.findings.push(Finding { frame: number, connection: None, kind });
            }
        }
        self.packets.push(packet);
    }

    pub(super) fn finish(mut self, complete: bool) -> Explained {
        let mut packets = mem::take(&mut self.packets);
        self.find_damage(&mut packets);
        let (flows, known) = flow::flows(&packets);
        let pairs = Pairs::of(&packets, &flows, known);
        let mut connections: Vec<Connection> = Vec::new();
        let mut by_flow: BTreeMap<Flow, (usize, bool)> = BTreeMap::new();
        let mut by_datagram: BTreeMap<_, usize> = BTreeMap::new();
        for (packet, flow) in packets.iter_mut().zip(flows) {
            let place =
                place(packet, flow, &pairs, &mut by_flow, &mut by_datagram, &mut connections);
            if let Some((index, from_second)) = place {
                packet.connection = Some(index);
                packet.from_second = from_second;
                let time = &mut connections[index].time;
                time.1 = time.1.max(packet.at);
            }
        }
        set_mtus(&packets, &mut connections);
        let senders = packets.iter().filter_map(|it| Some((it.connection?, it.from_second)));
        let senders: BTreeSet<_> = senders.collect();
        let talk = |(index, connection)| {
            Talk::new(connection, [false, true].map(|second| senders.contains(&(index, second))))
        };
        let mut talks: Vec<_> = connections.into_iter().enumerate().map(talk).collect();
        let mut messages = BTreeSet::new();
        for packet in &mut packets {
            if let (Some(mad), false) = (&packet.message, packet.why == Explanation::Damaged) {
                let known = (packet.net.src(), packet.net.dst(), mad.encode());
                let new = messages.insert(known);
                packet.why =
                    if new { Explanation::Message } else { Explanation::MessageRetransmit };
                if let Message::Rej(rej) = &mad.message {
                    self.find(packet, FindingKind::Rejected(rej.reason.to_string()));
                }
            }
            if packet.why == Explanation::Damaged {
                self.find(packet, FindingKind::WrongIcrc);
            }
            let Some(index) = packet.connection else { continue };
            let talk = &mut talks[index];
            talk.last_frame = packet.frame;
            self.explain(packet, talk);
            let service = talk.connection.service;
            if service != Service::Ud {
                let has_responses = service != Service::Uc;
                packet.requesters = talk.ends.each_ref().map(|end| end.requester(has_responses));
            }
        }
        let end = packets.iter().map(|packet| packet.at).max().unwrap_or_default();
        for (index, talk) in talks.iter_mut().enumerate() {
            let found = talk.conclude(end);
            let finding = |(frame, kind)| Finding { frame, connection: Some(index), kind };
            self.findings.extend(found.into_iter().map(finding));
        }
        let mut findings = self.findings;
        findings.sort_by_key(|finding| finding.frame);
        Explained {
            packets,
            connections: talks.into_iter().map(|talk| talk.connection).collect(),
            findings,
            other_frames: self.other_frames,
            fragments: self.fragments,
            complete,
        }
    }

    fn find_damage(&mut self, packets: &mut [ExplainedPacket]) {
        let mut excused_packets = BTreeSet::new();
        for Excused { way, packets: excused, fault } in self.icrcs.excused() {
            if let Some(&first) = excused.first() {
                let way = [way.0, way.1];
                let kind = FindingKind::WrongIcrcs { packets: excused.len(), way, fault };
                self.find(&packets[first], kind);
            }
            excused_packets.extend(excused);
        }
        for (index, packet) in packets.iter_mut().enumerate() {
            if packet.wrong_icrc && !excused_packets.contains(&index) {
                packet.why = Explanation::Damaged;
            }
        }
    }

    fn find(&mut self, packet: &ExplainedPacket, kind: FindingKind) {
        let (frame, connection) = (packet.frame, packet.connection);
        self.findings.push(Finding { frame, connection, kind });
    }

    fn explain(&mut self, packet: &mut ExplainedPacket, talk: &mut Talk) {
        let from = usize::from(packet.from_second);
        let summary = &mut talk.connection.summaries[from];
        summary.packets += 1;
        let Some(headers) = packet.headers else { return };
        if packet.why == Explanation::Damaged {
            summary.damaged += 1;
            return;
        }
        summary.bytes += packet.payload as u64;
        summary.marked += u64::from(packet.is_congested());
        let bth = headers.bth();
        match bth.opcode.service() {
            Service::Cnp => {
                summary.cnps += 1;
                talk.notified[1 - from].push((packet.frame, packet.at));
                packet.why = Explanation::Congestion;
                return;
            }
            Service::Ud => {
                if packet.message.is_none() {
                    packet.why = Explanation::Datagram;
                }
                return;
            }
            Service::Rc | Service::Uc | Service::Xrc => {}
        }
        if packet.payload > 0 {
            talk.data[from].push((packet.at, packet.payload as u64));
        }
        self.check_length(packet, &headers, talk);
        if bth.opcode.operation().is_response() {
            self.response(packet, &headers, talk);
        } else {
            self.request(packet, &headers, talk);
        }
    }

    /// Middle packets of a message have the path MTU.
    fn check_length(&mut self, packet: &ExplainedPacket, headers: &Headers, talk: &mut Talk) {
        let from = usize::from(packet.from_second);
        let place = headers.bth().opcode.operation().position();
        let within = matches!(place, PacketPosition::First | PacketPosition::Middle);
        let known = talk.connection.mtu.filter(|_| !talk.connection.mtu_at_least);
        let (Some(expected), true) = (known, within) else { return };
        let found = packet.payload as u32;
        if found != expected && !mem::replace(&mut talk.mismatched[from], true) {
            self.find(packet, FindingKind::MtuMismatch { expected, found });
        }
    }

    fn request(&mut self, packet: &mut ExplainedPacket, headers: &Headers, talk: &mut Talk) {
        let from = usize::from(packet.from_second);
        let bth = headers.bth();
        let operation = bth.opcode.operation();
        let (least, most) = match (operation, headers.ext().reth()) {
            (Operation::ReadRequest, Some(reth)) => spans(reth.dma_length, &talk.connection),
            _ => (1, 1),
        };
        let is_atomic = matches!(operation, Operation::CmpSwap | Operation::FetchAdd);
        let span = Span { least, most, awaits: is_atomic || operation == Operation::ReadRequest };
        let starts = operation.position().starts();
        packet.why = talk.ends[from].request(packet.at, bth.psn, span, starts);
        talk.connection.summaries[from].requests += 1;
        if let Explanation::AfterGap(count) = packet.why {
            self.find(packet, FindingKind::PsnJump(count));
        }
    }

    fn response(&mut self, packet: &mut ExplainedPacket, headers: &Headers, talk: &mut Talk) {
        let from = usize::from(packet.from_second);
        let psn = headers.bth().psn;
        let is_a_response = headers.bth().opcode.operation() != Operation::Acknowledge;
        // a response with data has an implied acknowledgement only
        let syndrome = headers.ext().aeth().map(|aeth| aeth.syndrome).filter(|_| !is_a_response);
        let summary = &mut talk.connection.summaries[from];
        match syndrome {
            Some(Syndrome::Nak(NakCode::PsnSequenceError)) => summary.sequence_naks += 1,
            Some(Syndrome::RnrNak { .. }) => summary.rnr_naks += 1,
            _ => {}
        }
        let end = &mut talk.ends[1 - from];
        if let Some(syndrome @ (Syndrome::Nak(_) | Syndrome::RnrNak { .. })) = syndrome {
            packet.why = Explanation::Negative(psn, syndrome);
            let cause = match syndrome {
                Syndrome::Nak(NakCode::PsnSequenceError) => Some(Cause::Nak),
                Syndrome::RnrNak { .. } => Some(Cause::NotReady),
                _ => None,
            };
            // the NAK may refer to packets lost before the capture
            if end.has(psn) || end.has_lost(psn) {
                end.msn = headers.ext().aeth().map(|aeth| aeth.msn);
                end.refuse(packet.at, psn, cause);
            }
            if cause.is_none() {
                self.find(packet, FindingKind::FatalNak(syndrome.to_string()));
            }
            return;
        }
        if !end.has(psn) {
            packet.why = match talk.connection.one_of {
                0 => Explanation::RespondsToUnseen,
                count => Explanation::RespondsToOneOf(count),
            };
            return;
        }
        end.msn = headers.ext().aeth().map(|aeth| aeth.msn).or(end.msn);
        let at = packet.at;
        let acknowledged = match syndrome {
            _ if is_a_response => {
                let (acknowledged, again) = end.data(at, psn);
                packet.why = Explanation::Responses { again };
                acknowledged
            }
            Some(Syndrome::Ack { .. }) => {
                let acknowledged = end.acknowledge(at, psn);
                packet.why = match acknowledged.packets {
                    0 => Explanation::DuplicateAcknowledge(psn),
                    packets => {
                        let after = acknowledged.after;
                        Explanation::Acknowledges { up_to: psn, packets, after }
                    }
                };
                acknowledged
            }
            _ => return,
        };
        if let Some(kind) = talk.measure(packet, &acknowledged) {
            self.find(packet, kind);
        }
    }
}

/// PSNs of a READ, least and most: one per response packet.
fn spans(length: u32, connection: &Connection) -> (u32, u32) {
    let packets = |mtu: u32| length.div_ceil(mtu.max(1)).clamp(1, 1 << 22);
    match connection.mtu {
        Some(mtu) if !connection.mtu_at_least => (packets(mtu), packets(mtu)),
        mtu => (packets(Mtu::B4096.bytes()), packets(mtu.unwrap_or(Mtu::B256.bytes()))),
    }
}
