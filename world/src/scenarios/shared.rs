//! Receive requests that several queue pairs share.

use roce_transport::{
    qp::QpType,
    work::{RecvWr, SendWr, SrqAttr},
};

use crate::{failure::Failure, line::Side, node::Options, world::World};

const A: Side = Side::Left;
/// A queue of eight requests.
const ATTR: SrqAttr = SrqAttr { max_wr: 8, max_sge: 1 };

pub(crate) fn srq(world: &mut World) -> Result<(), Failure> {
    let pd = world.b.pd;
    let srq = world.b.adapter.create_srq(pd, ATTR)?;
    let far = Options { srq: Some(srq), ..Options::default() };
    let (first, b1) = world.connect_with(Options::default(), far);
    let (second, b2) = world.connect_with(Options::default(), far);
    for (qpn, name) in [(first, "A1"), (second, "A2"), (b1, "B1"), (b2, "B2")] {
        world.name(qpn, name);
    }
    let (near, inbox) = (world.a.buffer(64), world.b.buffer(256));
    world.say(
        "B has two queue pairs, B1 and B2, which take their receive requests from one shared \
         receive queue. Three requests are posted there; whichever message starts first takes the \
         oldest. That saves buffers where many peers send little.",
    )?;
    for id in 0..3 {
        world.b.adapter.post_srq_recv(srq, &RecvWr::new(id, [inbox.sge(id * 64, 64)]))?;
    }
    world.post_send(A, second, &SendWr::send(11, near.sge(0, 8)))?;
    world.run()?;
    world.post_send(A, first, &SendWr::send(12, near.sge(0, 8)))?;
    world.run()?;
    world.post_send(A, second, &SendWr::send(13, near.sge(0, 8)))?;
    world.run()
}

pub(crate) fn xrc(world: &mut World) -> Result<(), Failure> {
    let options = Options::default();
    let (a_ip, b_ip) = (world.a.ip, world.b.ip);
    let xrcd = world.b.adapter.open_xrcd()?;
    let (pd, cq) = (world.b.pd, world.b.cq());
    let one = world.b.adapter.create_xrc_srq(pd, ATTR, xrcd, cq.clone())?;
    let other = world.b.adapter.create_xrc_srq(pd, ATTR, xrcd, cq)?;
    let initiator = world.quietly(|world| {
        let initiator = world.a.qp(QpType::XrcInitiator, &options);
        let target = world.b.target(xrcd);
        let now = world.now;
        for (node, service, own, to) in [
            (&mut world.a, QpType::XrcInitiator, initiator, (b_ip, target)),
            (&mut world.b, QpType::XrcTarget, target, (a_ip, initiator)),
        ] {
            node.enter_init(own);
            node.enter_rtr(service, own, to, &options);
            node.enter_rts(now, service, own, &options);
        }
        initiator
    });
    let (near, inbox) = (world.a.buffer(64), world.b.buffer(256));
    world.say(
        "One connection for many receivers. A's queue pair is an initiator, B's a target, which has \
         no queue of its own: each request names a shared receive queue of B (in the XRCETH), and \
         the target receives into that one. So a process of A needs one connection to a host, not \
         one to each of its processes.",
    )?;
    for (id, srq) in [(1, one), (2, other)] {
        world.b.adapter.post_srq_recv(srq, &RecvWr::new(id, [inbox.sge(id * 64, 64)]))?;
    }
    world.post_send(A, initiator, &SendWr::send(11, near.sge(0, 8)).to_srq(other))?;
    world.post_send(A, initiator, &SendWr::send(12, near.sge(0, 8)).to_srq(one))?;
    world.run()
}
