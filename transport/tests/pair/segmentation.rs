//! Segmentation by path MTU (9.4.1).

use roce_transport::{
    addr::Mtu,
    wire::Operation,
    work::{Data, RecvWr, SendWr},
};

use crate::common::{Options, Pair, Side, all_ok};

fn lengths(mtu: Mtu) -> Vec<usize> {
    let mtu = mtu.bytes() as usize;
    vec![
        0,
        1,
        2,
        3,
        mtu - 1,
        mtu,
        mtu + 1,
        2 * mtu - 1,
        2 * mtu,
        2 * mtu + 1,
        3 * mtu,
        7 * mtu + 2,
        65536 + 3,
    ]
}

fn for_each_length(mut check: impl FnMut(&mut Pair, Options, usize)) {
    for mtu in Mtu::ALL {
        for length in lengths(mtu) {
            check(&mut Pair::new(), Options { mtu, ..Options::default() }, length);
        }
    }
}

#[test]
fn send_of_every_length() {
    for_each_length(|pair, options, length| {
        let (a, b) = pair.connect(options);
        let from = pair.a.buffer(length).fill(1);
        let to = pair.b.buffer(length + 8);
        pair.post_recv(&b, &RecvWr::new(5, [to.all()]));
        pair.post_send(&a, &SendWr::send(7, from.all()));
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([7], 0));
        assert_eq!(b.recv_outcomes(), all_ok([5], length as u32));
        assert_eq!(to.part(0, length), from.bytes());
        assert_eq!(to.part(length, 8), [0; 8]);
        assert_eq!(pair.trace.from(Side::A).count() as u32, options.mtu.packets(length as u32));
    });
}

#[test]
fn write_of_every_length() {
    for_each_length(|pair, options, length| {
        let (a, b) = pair.connect(options);
        let from = pair.b.buffer(length).fill(1);
        let to = pair.a.buffer(length + 16);
        pair.post_send(&b, &SendWr::write(7, to.remote(8), from.all()));
        pair.run();
        assert_eq!(b.send_outcomes(), all_ok([7], 0));
        assert_eq!(a.received(), []);
        assert_eq!(to.part(8, length), from.bytes());
        assert_eq!((to.part(0, 8), to.part(length + 8, 8)), (vec![0; 8], vec![0; 8]));
    });
}

#[test]
fn read_of_every_length() {
    for_each_length(|pair, options, length| {
        let (a, _b) = pair.connect(options);
        let from = pair.b.buffer(length + 3).fill(1);
        let to = pair.a.buffer(length + 8);
        pair.post_send(&a, &SendWr::read(7, from.remote(3), to.sge(0, length)));
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([7], length as u32));
        assert_eq!(to.part(0, length), from.part(3, length));
        assert_eq!(to.part(length, 8), [0; 8]);
        assert_eq!(pair.trace.operations(Side::A), [Operation::ReadRequest]);
        assert_eq!(pair.trace.from(Side::B).count() as u32, options.mtu.packets(length as u32));
    });
}

#[test]
fn no_bytes_need_no_buffer() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    pair.post_recv(&b, &RecvWr::new(5, []));
    pair.post_send(&a, &SendWr::send(7, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([7], 0));
    assert_eq!(b.recv_outcomes(), all_ok([5], 0));
}
