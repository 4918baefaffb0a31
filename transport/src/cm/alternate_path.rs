use alloc::boxed::Box;

use super::{
    arrival::Arrival,
    connections::{Connections, find},
    message::{Apr, Lap, Message},
    state::Trigger,
};
use crate::event::DropReason;

impl Connections {
    /// Refuses an alternate path (12.8). On RoCE, Linux does not respond, and peers retry.
    pub(super) fn on_lap(&mut self, lap: &Lap, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let status = match find(&mut self.conns, lap.remote_id, lap.local_id, arrival) {
            Ok(conn) if conn.local_qpn != lap.remote_qpn => Apr::INVALID_COMM_ID,
            Ok(conn) if conn.state.name().expects(Trigger::Lap) => Apr::UNSUPPORTED,
            Ok(_) => return Err(DropReason::CmWrongState),
            Err(DropReason::CmUnknownConnection) => Apr::INVALID_COMM_ID,
            Err(reason) => return Err(reason),
        };
        let (local_id, remote_id) = (lap.remote_id, lap.local_id);
        let apr = Apr { local_id, remote_id, status, ..Apr::default() };
        self.common.response(arrival, Message::Apr(Box::new(apr)));
        Ok(())
    }

    /// This side sends no LAP.
    pub(super) fn on_apr(&mut self, apr: &Apr, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        find(&mut self.conns, apr.remote_id, apr.local_id, arrival)?;
        Err(DropReason::CmWrongState)
    }
}
