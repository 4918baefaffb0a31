//! Packet validation (9.6) and forged responses.

use roce_transport::{
    adapter::{IcrcCheck, TransmitBuffer},
    addr::{PKey, Qpn},
    event::{Disposition, DropReason},
    qp::{Quirks, State},
    wire::{
        Datagram, DatagramMeta, Ext, Headers, IcrcMatch, Ident, NakCode, NetHeader, Opcode,
        Operation as Op, Packet, Service, Syndrome, verify_icrc,
    },
    work::{Placement, RecvWr, SendWr, WcStatus},
};

use crate::common::{Half, Options, Pair, Pkt, UDP_SEGMENT, ack, all_ok, nak, pkt, rnr};

const fn dropped(reason: DropReason) -> Disposition {
    Disposition::Dropped(reason)
}

/// No refused packet may use the receive.
fn receiver() -> Half {
    let mut half = Half::new(Options::default());
    half.post_recv(&RecvWr::new(1, []));
    half
}

fn headers(half: &Half, change: impl FnOnce(&mut roce_transport::wire::Bth)) -> Headers {
    let mut bth = half.bth(&pkt(Op::SendOnly, Half::THEIRS).ask());
    change(&mut bth);
    Headers::new(bth, Ext::None).unwrap()
}

#[track_caller]
fn refused(mut half: Half, disposition: Disposition, reason: DropReason) {
    assert_eq!(disposition, dropped(reason));
    assert_eq!(half.node.adapter.counters().dropped(reason), 1);
    half.expect_nothing();
    assert_eq!((half.qp.received(), half.state()), (vec![], State::Rts));
    assert_eq!(half.send(&pkt(Op::SendOnly, Half::THEIRS)), Disposition::Executed);
}

/// Ports identify no sender.
#[test]
fn any_source_port_is_the_peers() {
    for src_port in [1, 4791, 0xC001, u16::MAX] {
        let mut half = receiver();
        let net = NetHeader { src_port, ..half.net() };
        let bytes = crate::common::encode(&net, headers(&half, |_| {}), b"");
        assert_eq!(half.send_bytes(&net, &bytes), Disposition::Executed);
    }
}

/// The check has 15 bits without the identification.
#[test]
fn every_bit_that_the_icrc_covers() {
    for ident in [Ident::Known { id: 7, dont_fragment: true }, Ident::Likely(7), Ident::Likely(0)] {
        let mut half = Half::new(Options::default());
        let to = half.buffer(8);
        half.post_recv(&RecvWr::new(1, [to.all()]));
        half.post_recv(&RecvWr::new(2, [to.all()]));
        let packet = Headers::new(half.bth(&pkt(Op::SendOnly, Half::THEIRS)), Ext::None).unwrap();
        let bytes = crate::common::encode(&half.net(), packet, b"payload");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let disposition = half.send_bytes(&NetHeader { ident, ..half.net() }, &changed);
            // byte 4: bits writable by routers
            let taken = !matches!(disposition, Disposition::Dropped(_));
            assert_eq!(taken, bit / 8 == 4, "bit {bit}: {disposition:?}");
        }
        assert_eq!(half.qp.received().len(), 1, "of the eight that were taken seven were repeats");
    }
}

#[test]
fn an_icrc_that_is_added_later_is_the_same() {
    let build = |mut buffer: TransmitBuffer| {
        let options = Options { quirks: Quirks { rxe_flush: true }, ..Options::default() };
        let (mut pair, a, _) = Pair::connected(options);
        let (from, to) = (pair.a.buffer(9_000).fill(1), pair.b.buffer(9_000));
        pair.post_send(&a, &SendWr::write(1, to.remote(0), from.all()));
        pair.post_send(&a, &SendWr::flush(2, to.remote(0), 8, Placement::GLOBAL));
        pair.post_send(&a, &SendWr::write(3, to.remote(0), from.all()));
        pair.a.adapter.poll_transmit(pair.now, &mut buffer);
        buffer
    };
    let datagrams = |buffer: &TransmitBuffer| -> Vec<_> {
        buffer.datagrams().map(|(net, bytes)| (net, bytes.to_vec())).collect()
    };
    let complete = datagrams(&build(TransmitBuffer::new(1 << 16, UDP_SEGMENT)));
    let mut buffer = build(TransmitBuffer::unsealed(1 << 16, UDP_SEGMENT));
    let unsealed = datagrams(&buffer);
    assert_eq!(unsealed.len(), complete.len());
    let meta = DatagramMeta { checksum_verified: true, ..DatagramMeta::default() };
    let mut lacking = 0;
    for ((net, bytes), (complete_net, complete)) in unsealed.iter().zip(&complete) {
        let sent = Datagram { net: complete_net, bytes, meta };
        lacking += usize::from(sent.lacks_icrc());
        let is_flush = Packet::parse(bytes).unwrap().headers.bth().opcode.operation() == Op::Flush;
        assert_eq!(sent.lacks_icrc(), !is_flush, "rxe's own is in place");
        if net == complete_net {
            assert_eq!(sent.sealed(&mut Vec::new()), complete);
        }
        assert!(!Datagram::new(net, bytes).lacks_icrc(), "who does not trust it finds it wrong");
    }
    assert_eq!(lacking, complete.len() - 1);

    // another run starts behind the FLUSH
    let sealed_net: Vec<_> = unsealed.iter().map(|(net, _)| *net).collect();
    buffer.seal(0);
    let first = buffer.runs()[0].count();
    let some = datagrams(&buffer);
    assert_ne!(some[..first], unsealed[..first]);
    assert_eq!(some[first..], unsealed[first..]);
    buffer.seal_all();
    buffer.seal_all(); // once is enough
    for ((net, bytes), expected) in datagrams(&buffer).iter().zip(&sealed_net) {
        assert_eq!(net, expected);
        assert_eq!(verify_icrc(net, bytes), Some(IcrcMatch::Exact));
    }
}

#[test]
fn the_identification_is_part_of_the_icrc() {
    let sealed = |half: &Half| crate::common::encode(&half.net(), headers(half, |_| {}), b"");
    let with = |ident| NetHeader { ident, ..Half::new(Options::default()).net() };
    let known = |id, dont_fragment| with(Ident::Known { id, dont_fragment });
    for (net, taken) in [
        (known(7, true), true),
        (known(8, true), false),
        (known(7, false), false),
        (with(Ident::Likely(7)), true),
        (with(Ident::Likely(0)), true),
        (with(Ident::Likely(0xFFFF)), true),
    ] {
        let mut half = receiver();
        let bytes = sealed(&half);
        let disposition = half.send_bytes(&net, &bytes);
        assert_eq!(disposition == Disposition::Executed, taken, "{net:?}");
        assert_eq!(half.node.adapter.counters().dropped(DropReason::Icrc), u64::from(!taken));
    }
}

/// The ICRC check has determined the identification.
#[test]
fn a_receipt_tells_the_identification_without_another_icrc() {
    let mut half = receiver();
    let exact = half.net(); // with identification 7
    let unknown = NetHeader { ident: Ident::Likely(0), ..exact };
    let right = crate::common::encode(&exact, headers(&half, |_| {}), b"");
    let mut wrong = right.clone();
    *wrong.last_mut().unwrap() ^= 0x80;
    let other = Qpn::new(half.qp.qpn.get() ^ 1);
    let astray = crate::common::encode(&exact, headers(&half, |bth| bth.dest_qp = other), b"");

    let solved = IcrcMatch::Solved { id: 7, dont_fragment: true };
    let verified = DatagramMeta { checksum_verified: true, ..DatagramMeta::default() };
    for (net, bytes, meta, icrc, identified) in [
        (unknown, &right, DatagramMeta::default(), IcrcCheck::Right(solved), exact),
        (exact, &right, DatagramMeta::default(), IcrcCheck::Right(IcrcMatch::Exact), exact),
        (exact, &right, verified, IcrcCheck::Trusted, exact),
        (unknown, &wrong, DatagramMeta::default(), IcrcCheck::Wrong, unknown),
    ] {
        let datagram = Datagram { net: &net, bytes, meta };
        let receipt = half.node.adapter.handle_datagram(half.now, &datagram);
        assert_eq!(receipt.icrc, icrc);
        assert_eq!(receipt.identify(&Datagram { bytes: &[], ..datagram }), identified);
    }
    // refused before its ICRC check
    let datagram = Datagram::new(&unknown, &astray);
    let receipt = half.node.adapter.handle_datagram(half.now, &datagram);
    assert_eq!(
        (receipt.disposition, receipt.icrc),
        (dropped(DropReason::UnknownQp), IcrcCheck::Skipped)
    );
    assert_eq!(receipt.identify(&datagram), exact);
}

#[test]
fn a_wrong_icrc() {
    let mut half = receiver();
    let mut bytes = crate::common::encode(&half.net(), headers(&half, |_| {}), b"");
    *bytes.last_mut().unwrap() ^= 0x80;
    let disposition = half.send_bytes(&half.net(), &bytes);
    refused(half, disposition, DropReason::Icrc);
}

#[test]
fn another_source_address() {
    let mut half = receiver();
    let net = NetHeader { src: [10, 0, 0, 3].into(), ..half.net() };
    let disposition = half.send_as(&net, headers(&half, |_| {}), b"");
    refused(half, disposition, DropReason::SourceAddress);
}

#[test]
fn another_destination_address() {
    let mut half = receiver();
    let net = NetHeader { dst: [10, 0, 0, 9].into(), ..half.net() };
    let disposition = half.send_as(&net, headers(&half, |_| {}), b"");
    refused(half, disposition, DropReason::DestinationAddress);
}

#[test]
fn another_partition() {
    for pkey in [0x1234, 0xFFFE, 0x7FFE] {
        let mut half = receiver();
        let disposition =
            half.send_as(&half.net(), headers(&half, |bth| bth.pkey = PKey(pkey)), b"");
        refused(half, disposition, DropReason::PKey);
    }
    let mut half = receiver();
    let limited = half.send_as(&half.net(), headers(&half, |bth| bth.pkey = PKey(0x7FFF)), b"");
    assert_eq!(limited, Disposition::Executed, "a limited member may talk to a full one");
}

#[test]
fn an_unknown_queue_pair_number() {
    let mut half = receiver();
    let other = Qpn::new(half.qp.qpn.get() ^ 1);
    let disposition = half.send_as(&half.net(), headers(&half, |bth| bth.dest_qp = other), b"");
    refused(half, disposition, DropReason::UnknownQp);
}

#[test]
fn another_service() {
    for service in [Service::Uc, Service::Ud] {
        let mut half = receiver();
        let opcode = Opcode::new(service, Op::SendOnly).unwrap();
        let ext = if service == Service::Ud {
            Ext::Deth(roce_transport::wire::Deth {
                qkey: crate::common::QKEY,
                source_qp: Half::PEER,
            })
        } else {
            Ext::None
        };
        let mut bth = half.bth(&pkt(Op::SendOnly, Half::THEIRS));
        bth.opcode = opcode;
        let disposition = half.send_as(&half.net(), Headers::new(bth, ext).unwrap(), b"");
        refused(half, disposition, DropReason::WrongService);
    }
}

#[test]
fn no_packet_at_all() {
    for bytes in [&[][..], &[0; 3], &[0; 15], &[0xFF; 40], &[4; 17]] {
        let mut half = receiver();
        let disposition = half.send_bytes(&half.net(), bytes);
        assert!(matches!(disposition, Disposition::Dropped(_)));
        half.expect_nothing();
    }
}

#[test]
fn what_does_not_matter() {
    for change in [0, 1, 2, 3] {
        let mut half = receiver();
        let mut net = half.net();
        let packet = headers(&half, |bth| match change {
            0 => bth.mig_req = false,
            1 => bth.fecn = true,
            2 => bth.becn = true,
            _ => net.src_port = 0,
        });
        assert_eq!(half.send_as(&net, packet, b""), Disposition::Executed);
    }
}

#[test]
fn forged_responses() {
    let mut half = Half::new(Options::default());
    let forged = |half: &mut Half, psn: u32| {
        let responses: [Pkt; 4] = [
            ack(psn, 1),
            nak(NakCode::RemoteAccessError, psn, 1),
            nak(NakCode::PsnSequenceError, psn, 1),
            rnr(1, psn, 1),
        ];
        responses.map(|response| half.send(&response))
    };
    let outside = dropped(DropReason::ResponseOutsideWindow);
    let stale = dropped(DropReason::StaleResponse);
    assert_eq!(forged(&mut half, 0x100), [outside; 4], "nothing was sent yet");
    half.post_sends(1..=2);
    half.take();
    for psn in [0x102, 0x103, 0x100 + 0x7F_FFFF] {
        assert_eq!(forged(&mut half, psn), [outside; 4], "{psn:#x}");
    }
    assert_eq!(forged(&mut half, 0xFF), [stale; 4]);
    half.send(&ack(0x100, 1));
    assert_eq!(forged(&mut half, 0x100), [stale; 4]);
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 0));
    half.send(&ack(0x101, 2));
    for psn in [0x100, 0x101, 0x102] {
        let all = if psn == 0x102 { outside } else { stale };
        assert_eq!(forged(&mut half, psn), [all; 4]);
    }
    assert_eq!(half.qp.send_outcomes(), all_ok([2], 0));
    assert_eq!(half.state(), State::Rts);
}

/// Reserved syndromes are no signs of life.
#[test]
fn reserved_syndromes() {
    let mut half = Half::with_sent(1);
    for byte in [0x40, 0x5F, 0x65, 0x7F, 0x80, 0xFF] {
        let syndrome = Syndrome::from_wire(byte);
        assert_eq!(syndrome, Syndrome::Reserved(byte));
        let disposition = half.send(&pkt(Op::Acknowledge, 0x100).aeth(syndrome, 1));
        assert_eq!(disposition, dropped(DropReason::ReservedSyndrome));
    }
    assert_eq!(half.qp.sent(), []);
    half.send(&ack(0x100, 1));
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 0));
}

/// The NAK must not acknowledge anything.
#[test]
fn the_nak_of_another_service() {
    let mut half = Half::with_sent(2);
    let disposition = half.send(&nak(NakCode::InvalidRdRequest, 0x101, 1));
    assert_eq!(disposition, dropped(DropReason::ReservedSyndrome));
    assert_eq!(half.qp.sent(), []);
}

/// Duplicates are half the PSN space.
#[test]
fn the_duplicate_region() {
    let mut half = receiver();
    assert_eq!(half.send(&pkt(Op::SendOnly, 0x200 - 1)), Disposition::Duplicate);
    assert_eq!(
        half.send(&pkt(Op::SendOnly, (0x200u32.wrapping_sub(0x80_0000)) & 0xFF_FFFF)),
        Disposition::Duplicate
    );
    half.take();
    half.send(&pkt(Op::SendOnly, 0x200 + 0x7F_FFFF));
    half.expect(&[nak(NakCode::PsnSequenceError, 0x200, 0)]);
    assert_eq!(half.qp.received(), []);
}

#[test]
fn congestion_notifications_are_counted() {
    let mut half = Half::new(Options::default());
    let mut bth = half.bth(&pkt(Op::SendOnly, 0));
    bth.opcode = Opcode::CNP;
    let disposition = half.send_as(&half.net(), Headers::new(bth, Ext::None).unwrap(), &[0; 16]);
    assert_eq!(disposition, Disposition::Congestion);
    assert_eq!(half.node.adapter.counters().cnp_received, 1);
    half.expect_nothing();
    let marked = NetHeader { traffic_class: 3, ..half.net() };
    half.post_recv(&RecvWr::new(1, []));
    half.send_as(&marked, headers(&half, |_| {}), b"");
    assert_eq!(half.node.adapter.counters().ecn_marked, 1);
}

#[test]
fn after_an_error_no_packet_is_accepted() {
    let mut half = Half::with_sent(1);
    half.send(&nak(NakCode::InvalidRequest, 0x100, 0));
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::RemInvReqErr))]);
    for packet in [ack(0x100, 1), pkt(Op::SendOnly, 0x200).ask()] {
        assert_eq!(half.send(&packet), dropped(DropReason::QpState));
    }
    half.expect_nothing();
}

#[test]
fn an_acknowledgement_has_no_payload() {
    let mut half = Half::with_sent(1);
    half.expect_drop(&ack(0x100, 1).payload(&[0; 4]), DropReason::PayloadInAcknowledge);
    assert_eq!(half.qp.send_outcomes(), []);
}
