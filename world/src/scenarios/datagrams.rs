use std::net::IpAddr;

use roce_transport::{
    addr::{AddressVector, QKey, Qpn},
    psn::Psn,
    qp::{QpType, Rtr, Rts},
    work::{RecvWr, SendWr, UdDestination},
};

use crate::{
    failure::Failure,
    line::End::{self, A, B},
    node::{Options, QKEY},
    world::World,
};

const GRH: u32 = 40;

fn datagrams(world: &mut World, end: End) -> Result<Qpn, Failure> {
    world.quietly(|world| {
        let now = world.now;
        let node = &mut world[end];
        let qpn = node.qp(QpType::Ud, &Options::default());
        node.enter_init(qpn);
        node.adapter.to_rtr(qpn, &Rtr::Ud)?;
        node.adapter.to_rts(now, qpn, &Rts::Ud(Psn::new(0)))?;
        Ok(qpn)
    })
}

pub(crate) fn ud(world: &mut World) -> Result<(), Failure> {
    let (a, b) = (datagrams(world, A)?, datagrams(world, B)?);
    let (near, far) = (world[A].buffer(64), world[B].buffer(256));
    let way = AddressVector::new(world[B].ip.into(), 0);
    world.say(
        "A datagram queue pair has no peer: each request names the receiver, by an address, a \
         queue pair number and a queue key (Q_Key). Nothing is acknowledged: a request completes \
         when it is sent. The first 40 bytes of B's buffer are for the IP header, which names the \
         sender.",
    )?;
    world.post_recv(B, b, &RecvWr::new(1, [far.sge(0, GRH + 64)]))?;
    let to = UdDestination::new(way, b, QKEY);
    world.post_send(A, a, &SendWr::send_to(2, to, near.sge(0, 16)))?;
    world.run()?;
    world.say(
        "With another Q_Key than B's the datagram is dropped. A is not notified: its request \
         completes with success. B counts it (qkey_violations).",
    )?;
    world.post_recv(B, b, &RecvWr::new(3, [far.sge(0, GRH + 64)]))?;
    let wrong = UdDestination::new(way, b, QKey(0x2222_2222));
    world.post_send(A, a, &SendWr::send_to(4, wrong, near.sge(0, 16)))?;
    world.run()
}

pub(crate) fn multicast(world: &mut World) -> Result<(), Failure> {
    let (a, b1, b2) = (datagrams(world, A)?, datagrams(world, B)?, datagrams(world, B)?);
    world.name(b1, "B1");
    world.name(b2, "B2");
    let (near, far) = (world[A].buffer(64), world[B].buffer(256));
    let group: IpAddr = [239, 1, 2, 3].into();
    world.say(
        "A multicast group is an IP address, here 239.1.2.3. B1 and B2 are attached to it, and \
         only B1 has posted a receive request. The datagram goes to the queue pair 0xffffff; every \
         member with a receive request gets a copy.",
    )?;
    for qpn in [b1, b2] {
        world[B].adapter.attach_mcast(qpn, group.into())?;
    }
    world.post_recv(B, b1, &RecvWr::new(1, [far.sge(0, GRH + 64)]))?;
    let to = UdDestination::new(AddressVector::new(group.into(), 0), Qpn::MULTICAST, QKEY);
    world.post_send(A, a, &SendWr::send_to(2, to, near.sge(0, 16)))?;
    world.run()
}
