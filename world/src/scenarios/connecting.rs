use std::time::Duration;

use roce_transport::{
    addr::{AddressVector, Mtu, PKey, Qpn},
    cm::{Accept, CmService, ConnEnd, ConnEvent, Connect, Listen, PortSpace},
    psn::Psn,
    qp::QpType,
};

use crate::{
    failure::Failure,
    line::End::{A, B},
    node::Options,
    world::{Shown, World},
};

pub(crate) fn cm(world: &mut World) -> Result<(), Failure> {
    let service_id = PortSpace::Tcp.service(7471);
    let (a, b) = world.quietly(|world| {
        let options = Options::default();
        let (a, b) = (world[A].qp(QpType::Rc, &options), world[B].qp(QpType::Rc, &options));
        world[A].enter_init(a);
        world[B].enter_init(b);
        (a, b)
    });
    world[B].adapter.cm_listen(Listen { service_id, address: None, backlog: 4 })?;
    world.shown = Shown::States;
    world.say(
        "rdma_cm: B listens on port 7471. A requests a connection (REQ) with its queue pair \
         number, first PSN and the other attributes that B's queue pair needs. B's program \
         accepts: its queue pair goes to RTS, and the reply (REP) carries B's attributes. A's \
         queue pair goes to RTS, and A confirms (RTU). The network loses the first REP.",
    )?;
    let now = world.now;
    let connect = Connect {
        service_id,
        av: AddressVector::new(world[B].ip.into(), 0),
        service: CmService::Rc,
        end: end(a, 100),
        managed: true,
        retry_count: 7,
        ack_timeout: 14,
        fits_ack_delay: false,
        path_mtu: Mtu::B1024,
        pkey: PKey::DEFAULT,
        private_data: b"",
    };
    let a_conn = world[A].adapter.cm_connect(now, &connect)?;
    world.run_for(Duration::from_millis(1))?;
    let Some(ConnEvent::Request { conn: b_conn, .. }) = world[B].adapter.poll_cm_event() else {
        return Err("no request has come to B within 1 ms, and its program waits no longer".into());
    };
    let accept = Accept { end: end(b, 500), private_data: b"" };
    let now = world.now;
    world[B].adapter.cm_accept(now, b_conn, &accept, true)?;
    world.run_for(Duration::from_secs(5))?;
    world.say(
        "The end: A disconnects (DREQ), and B's program confirms (DREP). Each program moves its \
         own queue pair.",
    )?;
    let now = world.now;
    world[A].adapter.cm_disconnect(now, a_conn, b"")?;
    world.run_for(Duration::from_millis(1))?;
    let now = world.now;
    world[B].adapter.cm_disconnect(now, b_conn, b"")?;
    world.run_for(Duration::from_millis(1))
}

fn end(qpn: Qpn, psn: u32) -> ConnEnd {
    ConnEnd {
        qpn,
        starting_psn: Psn::new(psn),
        responder_resources: 4,
        initiator_depth: 4,
        rnr_retry: 7,
        min_rnr_timer: 12,
        srq: false,
    }
}
