use roce_transport::{
    qp::QpType,
    work::{RecvWr, SendWr, SrqAttr},
};

use crate::{
    failure::Failure,
    line::End::{A, B},
    node::{EndQp, Options},
    world::World,
};

const ATTR: SrqAttr = SrqAttr { max_wr: 8, max_sge: 1 };

pub(crate) fn srq(world: &mut World) -> Result<(), Failure> {
    let pd = world[B].pd;
    let srq = world[B].adapter.create_srq(pd, ATTR)?;
    let far = Options { srq: Some(srq), ..Options::default() };
    let options = [Options::default(), far];
    let (first, b1) = world.connect_as([A, B], QpType::Rc, options);
    let (second, b2) = world.connect_as([A, B], QpType::Rc, options);
    for (qpn, name) in [(first, "A1"), (second, "A2"), (b1, "B1"), (b2, "B2")] {
        world.name(qpn, name);
    }
    let (near, inbox) = (world[A].buffer(64), world[B].buffer(256));
    world.say(
        "B has two queue pairs, B1 and B2, which take their receive requests from one shared \
         receive queue. Three requests are posted there; the first message to start takes the \
         oldest. That saves buffers if many peers send little.",
    )?;
    for id in 0..3 {
        world[B].adapter.post_srq_recv(srq, &RecvWr::new(id, [inbox.sge(id * 64, 64)]))?;
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
    let xrcd = world[B].adapter.open_xrcd()?;
    let (pd, cq) = (world[B].pd, world[B].cq());
    let one = world[B].adapter.create_xrc_srq(pd, ATTR, xrcd, cq.clone())?;
    let other = world[B].adapter.create_xrc_srq(pd, ATTR, xrcd, cq)?;
    let initiator = world.quietly(|world| {
        let initiator = world[A].qp(QpType::XrcInitiator, &options);
        let target = world[B].target(xrcd);
        let (near, far) = (EndQp { end: A, qpn: initiator }, EndQp { end: B, qpn: target });
        world.enter_rts(QpType::XrcInitiator, near, far, &options);
        world.enter_rts(QpType::XrcTarget, far, near, &options);
        initiator
    });
    let (near, inbox) = (world[A].buffer(64), world[B].buffer(256));
    world.say(
        "One connection for many receivers. A's queue pair is an initiator, B's a target, which \
         has no queue of its own: each request names a shared receive queue of B (in the XRCETH), \
         and the target receives from that queue. A process of A needs one connection for a host, \
         not one for each of its processes.",
    )?;
    for (id, srq) in [(1, one), (2, other)] {
        world[B].adapter.post_srq_recv(srq, &RecvWr::new(id, [inbox.sge(id * 64, 64)]))?;
    }
    world.post_send(A, initiator, &SendWr::send(11, near.sge(0, 8)).to_srq(other))?;
    world.post_send(A, initiator, &SendWr::send(12, near.sge(0, 8)).to_srq(one))?;
    world.run()
}
