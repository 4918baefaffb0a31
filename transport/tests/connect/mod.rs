mod another;
mod hand;
mod life;
mod limits;
mod loss;
mod record;
mod sidr;
mod stale;
mod subject;
mod swarm;
mod table;
mod trust;

use std::{net::IpAddr, time::Duration};

use roce_transport::{
    adapter::{Adapter, AdapterConfig},
    addr::{AddressVector, Mtu, PKey},
    cm::{
        Accept, CmConfig, CmService, ConnEnd, ConnError, ConnEvent, ConnId, Connect, Listen,
        ListenerId, PortSpace, Rej, Rep, Req, ServiceId,
    },
    psn::Psn,
    qp::{QpType, State},
};

use crate::common::{End, Node, Options, Pair, Side};

const SERVICE: ServiceId = PortSpace::Tcp.service(7471);

/// B listens, A calls.
struct Talk {
    pair: Pair,
    listener: ListenerId,
}

impl Talk {
    fn new() -> Self {
        Self::with(Pair::new())
    }

    fn with(mut pair: Pair) -> Self {
        let listener = listen(&mut pair.b, SERVICE, 16);
        Self { pair, listener }
    }

    fn configured(side: Side, change: impl FnOnce(&mut CmConfig)) -> Self {
        let mut pair = Pair::new();
        configure(pair.node(side), change);
        Self::with(pair)
    }

    /// A queue pair in INIT.
    fn qp(&mut self, side: Side) -> End {
        let options = Options::default();
        let node = self.pair.node(side);
        let end = node.qp(side, QpType::Rc, &options);
        node.enter_init(end.qpn, &options);
        end
    }

    fn call(&mut self) -> (ConnId, End) {
        let end = self.qp(Side::A);
        let conn = self.call_with(&end, SERVICE, b"").unwrap();
        (conn, end)
    }

    /// A call that has arrived.
    fn requested(&mut self) -> (ConnId, ConnId, End) {
        let (a, a_qp) = self.call();
        self.deliver_all();
        let (b, _) = self.requests()[0];
        (a, b, a_qp)
    }

    /// As a program that moves its own queue pair.
    fn call_unmanaged(&mut self, end: &End) -> ConnId {
        let call = Connect { managed: false, ..connect(end, self.pair.b.ip) };
        self.pair.a.adapter.cm_connect(self.pair.now, &call).unwrap()
    }

    fn call_with(
        &mut self,
        end: &End,
        service_id: ServiceId,
        private_data: &[u8],
    ) -> Result<ConnId, ConnError> {
        let to = self.pair.b.ip;
        let connect = Connect { service_id, private_data, ..connect(end, to) };
        self.pair.a.adapter.cm_connect(self.pair.now, &connect)
    }

    fn requests(&mut self) -> Vec<(ConnId, Req)> {
        let request = |event| match event {
            ConnEvent::Request { conn, req, .. } => (conn, *req),
            event => panic!("{event:?}"),
        };
        self.take(Side::B).into_iter().map(request).collect()
    }

    fn accept(&mut self, conn: ConnId) -> End {
        let end = self.qp(Side::B);
        self.pair.b.adapter.cm_accept(self.pair.now, conn, &accept(&end), true).unwrap();
        end
    }

    fn take(&mut self, side: Side) -> Vec<ConnEvent> {
        let node = self.pair.node(side);
        node.drain_events();
        std::mem::take(&mut node.cm_events)
    }

    fn connected(&mut self) -> (ConnId, ConnId, End, End) {
        let (a, b, a_qp) = self.requested();
        let b_qp = self.accept(b);
        self.deliver_all();
        assert!(
            matches!(self.take(Side::A)[..], [ConnEvent::Established { conn, rep: Some(_), .. }] if conn == a)
        );
        assert!(
            matches!(self.take(Side::B)[..], [ConnEvent::Established { conn, .. }] if conn == b)
        );
        assert_eq!((self.pair.state(&a_qp), self.pair.state(&b_qp)), (State::Rts, State::Rts));
        (a, b, a_qp, b_qp)
    }

    /// Shorter than retransmissions and time waits.
    #[track_caller]
    fn deliver_all(&mut self) {
        self.pair.run_for(Duration::from_millis(10));
    }

    fn disconnect(&mut self, side: Side, conn: ConnId) {
        let now = self.pair.now;
        self.pair.node(side).adapter.cm_disconnect(now, conn, b"").unwrap();
    }

    fn destroy(&mut self, side: Side, conn: ConnId) {
        let now = self.pair.now;
        self.pair.node(side).adapter.cm_mut().destroy(now, conn);
    }

    #[track_caller]
    fn assert_gone(&mut self) {
        assert_eq!((self.pair.a.adapter.cm().count(), self.pair.b.adapter.cm().count()), (0, 0));
        assert_eq!(self.pair.a.adapter.poll_timeout(), None);
        assert_eq!(self.pair.b.adapter.poll_timeout(), None);
    }
}

fn configure(node: &mut Node, change: impl FnOnce(&mut CmConfig)) {
    let IpAddr::V4(ip) = node.ip else { panic!("{}", node.ip) };
    let mut config = AdapterConfig::new([ip.octets()[3]; 32]);
    change(&mut config.cm);
    node.adapter = Adapter::new(config);
    node.adapter.set_gids(vec![node.ip.into()]);
    node.pd = node.adapter.alloc_pd().unwrap();
}

fn listen(node: &mut Node, service_id: ServiceId, backlog: usize) -> ListenerId {
    node.adapter.cm_listen(Listen { service_id, address: None, backlog }).unwrap()
}

fn connect(end: &End, to: IpAddr) -> Connect<'static> {
    Connect {
        service_id: SERVICE,
        av: AddressVector::new(to.into(), 0),
        service: CmService::Rc,
        end: ConnEnd {
            qpn: end.qpn,
            starting_psn: Psn::new(0x111),
            responder_resources: 3,
            initiator_depth: 4,
            rnr_retry: 6,
            min_rnr_timer: 12,
            srq: false,
        },
        managed: true,
        retry_count: 7,
        ack_timeout: 14,
        fits_ack_delay: false,
        path_mtu: Mtu::B1024,
        pkey: PKey::DEFAULT,
        private_data: b"",
    }
}

fn accept(end: &End) -> Accept<'static> {
    Accept {
        end: ConnEnd {
            qpn: end.qpn,
            starting_psn: Psn::new(0x222),
            responder_resources: 4,
            initiator_depth: 3,
            rnr_retry: 5,
            min_rnr_timer: 11,
            srq: false,
        },
        private_data: b"",
    }
}

fn rejection(event: &ConnEvent) -> &Rej {
    match event {
        ConnEvent::Rejected { rej, .. } => rej,
        event => panic!("{event:?}"),
    }
}

fn reply(event: &ConnEvent) -> &Rep {
    match event {
        ConnEvent::Established { rep: Some(rep), .. } | ConnEvent::Reply { rep, .. } => rep,
        event => panic!("{event:?}"),
    }
}
