//! Acknowledgements (9.7.2, 9.7.5.1.2).

use roce_transport::{
    addr::Mtu,
    event::Disposition,
    wire::{Aeth, Ext, Operation as Op, Syndrome},
    work::{Data, RecvWr, SendWr},
};

use crate::common::{Half, NULL_REMOTE, Options, Pair, Side, ack, all_ok, pkt};

#[test]
fn the_last_packet_of_a_message_asks() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(600).fill(1);
    half.post_send(&SendWr::send(1, from.all()));
    half.post_send(&SendWr::send(2, from.sge(0, 3)));
    half.expect(&[
        pkt(Op::SendFirst, 0x100).payload(&from.part(0, 256)),
        pkt(Op::SendMiddle, 0x101).payload(&from.part(256, 256)),
        pkt(Op::SendLast, 0x102).payload(&from.part(512, 88)).ask(),
        pkt(Op::SendOnly, 0x103).payload(&from.part(0, 3)).ask(),
    ]);
}

#[test]
fn at_least_every_64th_packet_asks() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(200 * 256);
    half.post_send(&SendWr::send(1, from.all()));
    let asking: Vec<u32> = half
        .take()
        .iter()
        .filter(|packet| packet.ack_req)
        .map(|packet| packet.psn - 0x100)
        .collect();
    assert_eq!(asking, [63, 127, 191, 199]);
}

#[test]
fn no_more_than_512_packets_wait_for_acknowledgement() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(556 * 256);
    half.post_send(&SendWr::send(1, from.all()));
    assert_eq!(half.take().len(), 512);
    half.send(&ack(0x100 + 63, 0));
    let more = half.take();
    assert_eq!((more.len(), more[0].psn), (44, 0x300));
}

#[test]
fn one_acknowledgement_stands_for_all_before_it() {
    let mut half = Half::new(Options::default());
    half.post_sends(1..=4);
    assert_eq!(half.take().len(), 4);
    assert_eq!(half.send(&ack(0x102, 3)), Disposition::Acknowledged { completed: 3 });
    assert_eq!(half.qp.send_outcomes(), all_ok(1..=3, 0));
    assert_eq!(half.send(&ack(0x103, 4)), Disposition::Acknowledged { completed: 1 });
    assert_eq!(half.qp.send_outcomes(), all_ok([4], 0));
    assert_eq!(half.node.adapter.poll_timeout(), None, "nothing is left to wait for");
}

/// The peer refuses requests without receives.
#[test]
fn credits_hold_nothing_back() {
    let mut half = Half::new(Options::default());
    let without = |psn, msn| pkt(Op::Acknowledge, psn).aeth(Syndrome::Ack { credits: 0 }, msn);
    half.post_send(&SendWr::send(1, Data::empty()));
    assert_eq!(half.take().len(), 1);
    assert_eq!(half.send(&without(0x100, 1)), Disposition::Acknowledged { completed: 1 });
    half.post_sends(2..=4);
    assert_eq!(half.take().len(), 3);
    assert_eq!(half.send(&without(0x103, 4)), Disposition::Acknowledged { completed: 3 });
    assert_eq!(half.qp.send_outcomes(), all_ok(1..=4, 0));
}

#[test]
fn a_message_completes_with_its_last_packet() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(1024);
    half.post_send(&SendWr::send(1, from.all()));
    half.take();
    assert_eq!(half.send(&ack(0x102, 0)), Disposition::Acknowledged { completed: 0 });
    assert_eq!(half.qp.sent(), []);
    assert_eq!(half.send(&ack(0x103, 1)), Disposition::Acknowledged { completed: 1 });
}

#[test]
fn a_responder_acknowledges_only_on_request() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(64);
    half.post_recvs(1..=3, &[to.all()]);
    half.send(&pkt(Op::SendOnly, 0x200).payload(b"one"));
    half.expect_nothing();
    half.exchange(&pkt(Op::SendOnly, 0x201).payload(b"two").ask(), &[ack(0x201, 2)]);
    half.send(&pkt(Op::SendOnly, 0x202).payload(b"three"));
    half.expect_nothing();
}

/// The acknowledgement is shorter than packets of four bytes or more and ends the run.
#[test]
fn an_acknowledgement_leaves_behind_the_only_packet_of_a_request() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(600).fill(1);
    let mut psn = 0x100;
    for (turn, length) in [8, 256, 0, 300].into_iter().enumerate() {
        half.post_recv(&RecvWr::new(1, []));
        half.send(&pkt(Op::SendOnly, 0x200 + turn as u32).ask());
        half.post_send(&SendWr::send(2, from.sge(0, length)));
        let ack = ack(0x200 + turn as u32, turn as u32 + 1);
        let only = pkt(Op::SendOnly, psn).payload(&from.part(0, length.min(256))).ask();
        if length <= 256 {
            half.expect(&[only, ack]);
            psn += 1;
        } else {
            let first = pkt(Op::SendFirst, psn).payload(&from.part(0, 256));
            let last = pkt(Op::SendLast, psn + 1).payload(&from.part(256, length - 256)).ask();
            half.expect(&[ack, first, last]);
        }
    }
}

#[test]
fn an_adapter_tells_when_acknowledgements_are_all_that_it_sends() {
    let mut half = Half::new(Options::default());
    let buffer = half.buffer(64);
    assert!(!half.node.adapter.only_acknowledges(), "nothing");
    half.post_recv(&RecvWr::new(1, []));
    half.send(&pkt(Op::SendOnly, 0x200).ask());
    assert!(half.node.adapter.only_acknowledges());
    half.post_send(&SendWr::send(2, buffer.all()));
    assert!(!half.node.adapter.only_acknowledges(), "a request");
    assert_eq!(half.take().len(), 2);
    assert!(!half.node.adapter.only_acknowledges());
    half.send(&pkt(Op::SendOnly, 0x201).ask());
    assert!(!half.node.adapter.only_acknowledges(), "a NAK: no receive was posted");
    assert_eq!(half.take().len(), 1);
    half.send(&pkt(Op::ReadRequest, 0x201).reth(buffer.remote(0), 64).ask());
    assert!(!half.node.adapter.only_acknowledges(), "an answer with data");
    assert_eq!(half.take().len(), 1);
}

/// A polling thread's first check, usually false.
#[test]
fn an_adapter_tells_whether_it_has_anything_to_do() {
    let mut half = Half::new(Options::default());
    let buffer = half.buffer(64);
    let is_due = |half: &mut Half| half.node.adapter.is_due(half.now);
    assert_eq!(half.take().len(), 0);
    assert!(!is_due(&mut half));
    half.post_recv(&RecvWr::new(1, []));
    assert!(!is_due(&mut half));
    half.post_send(&SendWr::send(2, buffer.all()));
    assert!(is_due(&mut half), "a request");
    assert_eq!(half.take().len(), 1);
    assert!(!is_due(&mut half), "it waits for its acknowledgement");
    half.send(&ack(0x100, 1));
    assert!(!is_due(&mut half), "there is nothing more to send");
    half.send(&pkt(Op::SendOnly, 0x200).ask());
    assert!(is_due(&mut half), "an acknowledgement");
    assert_eq!(half.take().len(), 1);
    assert!(!is_due(&mut half));
    half.post_send(&SendWr::send(3, buffer.all()));
    assert_eq!(half.take().len(), 1);
    let due = half.node.adapter.poll_timeout().unwrap();
    assert!(!is_due(&mut half));
    assert!(half.node.adapter.is_due(due), "a probe");
}

#[test]
fn acknowledgements_of_one_batch_become_one() {
    let mut half = Half::new(Options::default());
    half.post_recvs(0..5, &[]);
    for psn in 0x200..0x205 {
        assert_eq!(half.send(&pkt(Op::SendOnly, psn).ask()), Disposition::Executed);
    }
    half.expect(&[ack(0x204, 5)]);

    let (mut pair, a, b) = Pair::connected(Options::default());
    for id in 0..10 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok(0..10, 0));
    assert_eq!(pair.trace.from(Side::B).count(), 1);
}

/// A READ counts when executed, a WRITE at its last packet.
#[test]
fn the_msn_counts_messages() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(1024);
    half.post_recv(&RecvWr::new(1, [to.all()]));
    half.send(&pkt(Op::WriteFirst, 0x200).reth(to.remote(0), 300).payload(&[1; 256]).ask());
    half.expect(&[ack(0x200, 0)]);
    half.send(&pkt(Op::WriteLast, 0x201).payload(&[1; 44]).ask());
    half.expect(&[ack(0x201, 1)]);
    half.send(&pkt(Op::ReadRequest, 0x202).reth(to.remote(0), 257));
    half.expect(&[
        pkt(Op::ReadResponseFirst, 0x202).aeth(Syndrome::ACK, 2).payload(&[1; 256]),
        pkt(Op::ReadResponseLast, 0x203).aeth(Syndrome::ACK, 2).payload(&[1]),
    ]);
    half.exchange(&pkt(Op::SendOnly, 0x204).ask(), &[ack(0x204, 3)]);
}

#[test]
fn responses_keep_the_order_of_requests() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let memory = half.buffer(1024).fill(1);
    half.send(&pkt(Op::WriteOnly, 0x200).reth(memory.remote(0), 1).payload(&[9]).ask());
    half.send(&pkt(Op::ReadRequest, 0x201).reth(memory.remote(256), 256));
    half.send(&pkt(Op::WriteOnly, 0x202).reth(memory.remote(1), 1).payload(&[8]).ask());
    half.expect(&[
        ack(0x200, 1),
        pkt(Op::ReadResponseOnly, 0x201).aeth(Syndrome::ACK, 2).payload(&memory.part(256, 256)),
        ack(0x202, 3),
    ]);
}

#[test]
fn credits_are_not_used() {
    let mut half = Half::new(Options::default());
    half.send(&pkt(Op::WriteOnly, 0x200).reth(NULL_REMOTE, 0).ask());
    let responses = half.take();
    let Ext::Aeth(Aeth { syndrome: Syndrome::Ack { credits }, .. }) = responses[0].ext else {
        panic!("{responses:?}")
    };
    assert_eq!(credits, 31, "31 says that there is no end-to-end flow control");
    // the peer's credits are ignored
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    half.send(&pkt(Op::Acknowledge, 0x100).aeth(Syndrome::Ack { credits: 0 }, 1));
    half.post_send(&SendWr::send(2, Data::empty()));
    assert_eq!(half.take().len(), 1);
}
