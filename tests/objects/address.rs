use roce::{
    AddressVector, AhFromWcError, CompletionQueue, Context, Data, Init, Limits, MemoryRegion,
    ObjectError, ObjectKind, OpenOptions, ProtectionDomain, QKey, QpInitAttr, QpType, Qpn,
    QueuePair, RecvWr, Rtr, Rts, SendWr,
};
use roce_transport::{psn::Psn, wire::GRH_LEN, work::Cause};

use super::{ALL, loopback, next, open};

const QKEY: QKey = QKey(0x1234);

struct Datagrams {
    cq: CompletionQueue,
    qp: QueuePair,
    pd: ProtectionDomain,
    memory: MemoryRegion,
}

fn datagrams(context: &Context) -> Datagrams {
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Ud, &cq)).unwrap();
    qp.to_init(Init { qkey: QKEY, ..Init::default() }).unwrap();
    qp.to_rtr(Rtr::Ud).unwrap();
    qp.to_rts(Rts::Ud(Psn::new(0))).unwrap();
    let memory = pd.allocate(256, ALL).unwrap();
    Datagrams { cq, qp, pd, memory }
}

#[test]
fn address_handles_there_and_back() {
    let (context_a, context_b) = (open(), open());
    let (a, b) = (datagrams(&context_a), datagrams(&context_b));
    let there = a.pd.create_ah(AddressVector::new(context_b.gids()[0], 0)).unwrap();
    assert_eq!(there.address_vector().dgid, context_b.query_gid(0).unwrap());
    b.qp.post_recv(&[RecvWr::new(1, [b.memory.sge_all()])]).unwrap();
    a.qp.post_recv(&[RecvWr::new(2, [a.memory.sge_all()])]).unwrap();
    a.qp.post_send(&[SendWr::send_to(3, there.to(b.qp.qpn(), QKEY), Data::inline(b"who?"))])
        .unwrap();
    let received = next(&b.cq);
    let area: [u8; GRH_LEN] = b.memory.to_vec(0..GRH_LEN).unwrap().try_into().unwrap();
    let back = b.pd.create_ah_from_wc(&received, &area).unwrap();
    let source = received.result.unwrap().src_qp.unwrap();
    b.qp.post_send(&[SendWr::send_to(4, back.to(source, QKEY), Data::inline(b"me"))]).unwrap();
    assert_eq!([next(&a.cq), next(&a.cq)].map(|wc| wc.wr_id), [3, 2]);
    assert_eq!(a.memory.to_vec(GRH_LEN..GRH_LEN + 2).unwrap(), b"me");

    let sent = next(&b.cq);
    assert_eq!(b.pd.create_ah_from_wc(&sent, &area).err(), Some(AhFromWcError::NotDatagram));
    assert_eq!(
        b.pd.create_ah_from_wc(&received, &[0; GRH_LEN]).err(),
        Some(AhFromWcError::NoHeader)
    );
    // as if the other device had received it
    assert_eq!(a.pd.create_ah_from_wc(&received, &area).err(), Some(AhFromWcError::NoAddress));

    assert_eq!(context_b.init_ah_from_wc(&area), Ok(back.address_vector()));
    assert_eq!(context_b.init_ah_from_wc(&[0; GRH_LEN]), Err(AhFromWcError::NoHeader));
    assert_eq!(context_a.init_ah_from_wc(&area), Err(AhFromWcError::NoAddress));
}

#[test]
fn a_handle_of_another_domain_is_refused() {
    let context = open();
    let side = datagrams(&context);
    let other = context.alloc_pd().unwrap();
    let ah = other.create_ah(AddressVector::new(context.gids()[0], 0)).unwrap();
    side.qp.post_send(&[SendWr::send_to(1, ah.to(Qpn::new(2), QKEY), Data::empty())]).unwrap();
    assert_eq!(
        next(&side.cq).result.map_err(|error| error.cause),
        Err(Cause::ForeignAddressHandle)
    );
    assert_eq!(
        other.create_ah(AddressVector::new(context.gids()[0], 2)).err(),
        Some(ObjectError::GidIndex(2))
    );
}

#[test]
fn handles_make_room_when_they_go() {
    let context = loopback(OpenOptions {
        limits: Limits { max_ah: 2, ..Limits::default() },
        ..OpenOptions::default()
    });
    let pd = context.alloc_pd().unwrap();
    let make = || pd.create_ah(AddressVector::new(context.gids()[0], 0));
    let (first, second) = (make().unwrap(), make().unwrap());
    let copy = first.clone();
    drop(first);
    assert_eq!(
        make().err(),
        Some(ObjectError::TooMany { what: ObjectKind::AddressHandle, limit: 2 })
    );
    drop((copy, second));
    let _again = (make().unwrap(), make().unwrap());
}
