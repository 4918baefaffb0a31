//! The communication manager of one adapter: it takes commands and messages to connections and
//! service ID resolutions.

use alloc::boxed::Box;

use rand_chacha::ChaCha12Rng;

use super::{
    active::ReplyOutcome,
    arrival::Arrival,
    command::{Accept, ConnId, Connect, Listen, ListenerId},
    common::{Common, OutgoingMad, RequestFaults},
    config::CmConfig,
    connections::Connections,
    error::ConnError,
    event::ConnEvent,
    message::{Message, RejectReason},
    path::CmPath,
    qp_setup::QpSetup,
    record::ConnRecord,
    service::ServiceId,
    sidr::Sidr,
    state::{CmState, Trigger},
};
use crate::{addr::QKey, event::DropReason, gids::Path, ids::Qpn, psn::Psn, time::Instant};

/// Connection management of one adapter.
///
/// After a command, a message or a deadline, take what [`poll_event`](Self::poll_event) and
/// [`poll_transmit`](Self::poll_transmit) have, and look at [`poll_timeout`](Self::poll_timeout)
/// again.
pub(crate) struct Cm {
    common: Common,
    connections: Connections,
    sidr: Sidr,
}

impl Cm {
    pub(crate) fn new(config: CmConfig, guid: u64) -> Self {
        let (connections, sidr) = (Connections::default(), Sidr::default());
        Self { common: Common::new(config, guid), connections, sidr }
    }

    /// Has requests rejected as these say.
    pub(crate) fn set_faults(&mut self, faults: Option<Box<dyn RequestFaults>>) {
        self.common.faults = faults;
    }

    // Getters.

    pub(crate) fn state(&self, id: ConnId) -> Option<CmState> {
        self.connections.state(id).or_else(|| self.sidr.state(id))
    }

    /// Number of connections and service ID resolutions.
    pub(crate) fn count(&self) -> usize {
        self.common.ids_in_use()
    }

    /// Attributes for the connection's queue pair, until it is established.
    pub(crate) fn qp_setup(&self, id: ConnId) -> Option<QpSetup> {
        self.connections.conns.get(&id.0)?.qp_setup()
    }

    // What happens.

    /// Takes a message that came to QP1.
    pub(crate) fn handle(
        &mut self,
        message: &Message,
        arrival: &mut Arrival<'_>,
    ) -> Result<ReplyOutcome, DropReason> {
        let Self { common, connections, sidr } = self;
        match message {
            Message::Rep(rep) => return connections.on_rep(common, rep, arrival),
            Message::Req(req) => connections.on_req(common, req, arrival),
            Message::Mra(mra) => connections.on_mra(common, mra, arrival),
            Message::Rej(rej) => connections.on_rej(common, rej, arrival),
            Message::Rtu(rtu) => connections.on_rtu(common, rtu, arrival),
            Message::Dreq(dreq) => connections.on_dreq(common, dreq, arrival),
            Message::Drep(drep) => connections.on_drep(common, drep, arrival),
            Message::Lap(lap) => connections.on_lap(common, lap, arrival),
            Message::Apr(apr) => connections.on_apr(apr, arrival),
            Message::SidrReq(req) => sidr.on_req(common, req, arrival),
            Message::SidrRep(rep) => sidr.on_rep(common, rep, arrival),
        }?;
        Ok(ReplyOutcome::Handled)
    }

    /// Does what was due. `expected` tells which PSN an own queue pair expects from a peer's.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        expected: &dyn Fn(Qpn, Qpn) -> Option<Psn>,
    ) {
        let Self { common, connections, sidr } = self;
        while let Some(id) = common.deadlines.pop_due(now) {
            match sidr.state(ConnId(id)) {
                Some(_) => sidr.on_deadline(common, now, id),
                None => connections.on_deadline(common, now, id, expected),
            }
        }
        while let Some(id) = common.pop_time_wait(now) {
            connections.leave_time_wait(common, id);
        }
    }

    // Commands. Each is refused in states without an edge for it.

    pub(crate) fn listen(&mut self, listen: Listen) -> Result<ListenerId, ConnError> {
        self.common.listeners.add(listen)
    }

    pub(crate) fn unlisten(&mut self, id: ListenerId) -> Result<(), ConnError> {
        self.common.listeners.remove(id)
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
        path: Path,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        self.connections.connect(&mut self.common, now, connect, path, rng)
    }

    /// Notes what the program answers to a request, so that [`qp_setup`](Self::qp_setup) knows.
    pub(crate) fn prepare(&mut self, id: ConnId, accept: &Accept<'_>) -> Result<(), ConnError> {
        self.check(id, Trigger::Accept)?;
        self.connections.prepare(&self.common, id, accept)
    }

    /// Sends what was [prepared](Self::prepare). `managed` if the adapter has moved the queue pair.
    pub(crate) fn accept(&mut self, now: Instant, id: ConnId, managed: bool) {
        self.connections.accept(&mut self.common, now, id, managed);
    }

    /// Answers a reply: the own queue pair is ready.
    pub(crate) fn establish(&mut self, id: ConnId, private_data: &[u8]) -> Result<(), ConnError> {
        self.check(id, Trigger::Establish)?;
        self.connections.establish(&mut self.common, id, private_data)
    }

    /// The same for a connection whose queue pair the adapter has moved: the program gets an event.
    pub(crate) fn complete(&mut self, id: ConnId) {
        self.connections.complete(&mut self.common, id);
    }

    /// The peer has accepted, but the local queue pair could not change its state.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnId) {
        self.connections.fail(&mut self.common, now, id);
    }

    pub(crate) fn notify(&mut self, id: ConnId) -> Result<(), ConnError> {
        self.check(id, Trigger::Notify)?;
        self.connections.notify(&mut self.common, id)
    }

    pub(crate) fn reject(
        &mut self,
        now: Instant,
        id: ConnId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), ConnError> {
        self.check(id, Trigger::Reject)?;
        self.connections.reject(&mut self.common, now, id, reason, private_data)
    }

    pub(crate) fn disconnect(
        &mut self,
        now: Instant,
        id: ConnId,
        private_data: &[u8],
    ) -> Result<(), ConnError> {
        self.check(id, Trigger::Disconnect)?;
        self.connections.disconnect(&mut self.common, now, id, private_data)
    }

    /// What another adapter needs to know to end a connection.
    pub(crate) fn record(&self, id: ConnId) -> Option<ConnRecord> {
        self.connections.record(id)
    }

    /// The next connection whose record has come or gone, and what it is now.
    pub(crate) fn poll_record(&mut self) -> Option<(ConnId, Option<ConnRecord>)> {
        let id = self.common.poll_record()?;
        Some((id, self.record(id)))
    }

    /// The peer's process has ended.
    pub(crate) fn peer_ended(&mut self, now: Instant, id: ConnId) {
        self.connections.end_by_peer(&mut self.common, now, id);
    }

    pub(crate) fn end_for_another(
        &mut self,
        now: Instant,
        record: &ConnRecord,
        path: Path,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        let path = CmPath { path, pkey: record.pkey };
        self.connections.end_for_another(&mut self.common, now, record, path, rng)
    }

    pub(crate) fn sidr_request(
        &mut self,
        now: Instant,
        service_id: ServiceId,
        private_data: &[u8],
        path: CmPath,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        self.sidr.request(&mut self.common, now, service_id, private_data, path, rng)
    }

    pub(crate) fn sidr_respond(
        &mut self,
        id: ConnId,
        receiver: Result<(Qpn, QKey), u8>,
        private_data: &[u8],
    ) -> Result<(), ConnError> {
        self.check(id, Trigger::SidrRespond)?;
        self.sidr.respond(&mut self.common, id, receiver, private_data)
    }

    pub(crate) fn destroy(&mut self, now: Instant, id: ConnId) {
        self.connections.destroy(&mut self.common, now, id);
        self.sidr.destroy(&mut self.common, id);
    }

    fn check(&self, id: ConnId, command: Trigger) -> Result<(), ConnError> {
        match self.state(id) {
            Some(state) if state.expects(command) => Ok(()),
            Some(state) => Err(ConnError::State(state)),
            None => Err(ConnError::Unknown),
        }
    }

    // What is due.

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.common.poll_timeout()
    }

    pub(crate) fn poll_event(&mut self) -> Option<ConnEvent> {
        self.common.poll_event()
    }

    pub(crate) fn has_transmit(&self) -> bool {
        self.common.has_transmit()
    }

    /// True if there is something to send or to tell.
    pub(crate) fn is_due(&self) -> bool {
        self.common.is_due()
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<OutgoingMad> {
        self.common.poll_transmit()
    }
}
