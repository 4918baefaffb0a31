use roce::{
    BadWorkRequest, Data, OpenOptions, PostError, Progress, QpCaps, QpInitAttr, QpType, RecvWr,
    SendWr, SrqAttr, State,
};

use super::{ALL, eventually, loopback, next, open};

/// Single posts stop at the first wrong request; a batch is posted whole or refused.
#[test]
fn ways_to_post() {
    let (a, b) = (open(), open());
    let (cq_a, cq_b) = (a.create_cq(64, None).unwrap(), b.create_cq(64, None).unwrap());
    let (pd_a, pd_b) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
    let caps = QpCaps { max_send_wr: 4, max_inline_data: 8, ..QpCaps::default() };
    let qp_a = pd_a.create_qp(&QpInitAttr { caps, ..QpInitAttr::new(QpType::Rc, &cq_a) }).unwrap();
    let srq = pd_b.create_srq(SrqAttr { max_wr: 16, max_sge: 1 }).unwrap();
    let qp_b = pd_b
        .create_qp(&QpInitAttr { srq: Some(srq.clone()), ..QpInitAttr::new(QpType::Rc, &cq_b) })
        .unwrap();
    let send = |id| SendWr::send(id, Data::inline(b"x"));
    assert_eq!(
        qp_a.post_send_all(&[send(0)]),
        Err(BadWorkRequest { index: 0, error: PostError::State(State::Reset) })
    );
    qp_a.connect_to(qp_b.endpoint(0).unwrap()).unwrap();
    qp_b.connect_to(qp_a.endpoint(0).unwrap()).unwrap();
    let memory = pd_b.allocate(64, ALL).unwrap();
    let posted = srq.post_recv_with(|post| {
        (0..9).try_for_each(|id| post(&RecvWr::new(id, [memory.sge(0..8)])))
    });
    assert_eq!(posted, Ok(()));
    let twice = RecvWr::new(9, [memory.sge(0..8), memory.sge(8..16)]);
    assert_eq!(srq.post_recv_with(|post| post(&twice)), Err(PostError::TooManySges { limit: 1 }));

    let too_long = || SendWr::send(9, Data::inline(&[0; 9]));
    let refused = PostError::InlineTooLong { limit: 8 };
    let wrs = [send(1), send(2), too_long(), send(3)];
    assert_eq!(qp_a.post_send_with(|post| wrs.iter().try_for_each(post)), Err(refused));
    assert_eq!([next(&cq_a), next(&cq_a)].map(|wc| wc.wr_id), [1, 2]);
    let failed = |index, error| Err(BadWorkRequest { index, error });
    assert_eq!(qp_a.post_send_all(&wrs), failed(2, refused));
    let wrs: Vec<_> = (4..9).map(send).collect();
    assert_eq!(qp_a.post_send_all(&wrs), failed(4, PostError::QueueFull));
    assert_eq!(qp_a.post_send_all(&wrs[..4]), Ok(()));
    assert_eq!([(); 4].map(|()| next(&cq_a).wr_id), [4, 5, 6, 7], "nothing of what was refused");
    assert_eq!([(); 6].map(|()| next(&cq_b).wr_id), [0, 1, 2, 3, 4, 5]);

    let empty = RecvWr::new(1, []);
    assert_eq!(qp_a.post_recv_with(|post| post(&empty)), Ok(()));
    assert_eq!(qp_b.post_recv_with(|post| post(&empty)), Err(PostError::SharedQueue));
}

/// The lock is not held throughout.
#[test]
fn a_long_list_is_posted_in_portions() {
    const LIST: u64 = 300;
    let (a, b) = (loopback(manual()), open());
    let (cq_a, cq_b) = (a.create_cq(512, None).unwrap(), b.create_cq(512, None).unwrap());
    let (pd_a, pd_b) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
    let caps = QpCaps { max_send_wr: 512, max_recv_wr: 512, ..QpCaps::default() };
    let attr = |cq| QpInitAttr { caps, ..QpInitAttr::new(QpType::Rc, cq) };
    let (qp_a, qp_b) =
        (pd_a.create_qp(&attr(&cq_a)).unwrap(), pd_b.create_qp(&attr(&cq_b)).unwrap());
    qp_a.connect_to(qp_b.endpoint(0).unwrap()).unwrap();
    qp_b.connect_to(qp_a.endpoint(0).unwrap()).unwrap();
    let recvs: Vec<_> = (0..LIST).map(|id| RecvWr::new(id, [])).collect();
    qp_b.post_recv(&recvs).unwrap();
    let received = || b.counters().received_packets;
    qp_a.post_send_with(|post| {
        for id in 0..LIST {
            if id == 256 {
                assert_eq!(received(), 0, "the first portion");
            }
            post(&SendWr::send(id, Data::empty())).unwrap();
        }
        eventually("the first portion leaves", || received() > 0);
    });
    assert!((0..LIST).eq((0..LIST).map(|_| next(&cq_a).wr_id)), "in order");
    assert!((0..LIST).eq((0..LIST).map(|_| next(&cq_b).wr_id)), "in order");
}

fn manual() -> OpenOptions {
    OpenOptions { progress: Progress::Manual, ..OpenOptions::default() }
}
