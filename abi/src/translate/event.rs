use std::ffi::c_uint;

use roce_provider::AsyncEvent;

use crate::layout::consts::*;

/// Objects by the adapter's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Subject {
    Cq(u32),
    Qp(u32),
    Srq(u32),
    Port,
    Device,
}

/// `None` without a number in C.
pub(crate) fn to_c(event: AsyncEvent) -> Option<(c_uint, Subject)> {
    Some(match event {
        AsyncEvent::CqError(cq) => (IBV_EVENT_CQ_ERR, Subject::Cq(cq.0)),
        AsyncEvent::QpFatal(qpn) => (IBV_EVENT_QP_FATAL, Subject::Qp(qpn.get())),
        AsyncEvent::QpRequestError(qpn, _) => (IBV_EVENT_QP_REQ_ERR, Subject::Qp(qpn.get())),
        AsyncEvent::QpAccessError(qpn, _) => (IBV_EVENT_QP_ACCESS_ERR, Subject::Qp(qpn.get())),
        AsyncEvent::CommunicationEstablished(qpn) => (IBV_EVENT_COMM_EST, Subject::Qp(qpn.get())),
        AsyncEvent::SendQueueDrained(qpn) => (IBV_EVENT_SQ_DRAINED, Subject::Qp(qpn.get())),
        AsyncEvent::DeviceFatal => (IBV_EVENT_DEVICE_FATAL, Subject::Device),
        AsyncEvent::PortActive => (IBV_EVENT_PORT_ACTIVE, Subject::Port),
        AsyncEvent::PortError => (IBV_EVENT_PORT_ERR, Subject::Port),
        AsyncEvent::PKeyChange => (IBV_EVENT_PKEY_CHANGE, Subject::Port),
        AsyncEvent::SrqLimitReached(srq) => (IBV_EVENT_SRQ_LIMIT_REACHED, Subject::Srq(srq.get())),
        AsyncEvent::LastWqeReached(qpn) => (IBV_EVENT_QP_LAST_WQE_REACHED, Subject::Qp(qpn.get())),
        AsyncEvent::GidChange => (IBV_EVENT_GID_CHANGE, Subject::Port),
        _ => return None,
    })
}
