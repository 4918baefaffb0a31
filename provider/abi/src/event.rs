//! Asynchronous events.

use std::ffi::{c_int, c_uint};

use roce_provider::{AsyncEvent, calls::Call};

use crate::{
    context::{ContextInner, Ctx},
    errno,
    export::export,
    layout::{Element, consts::*, ibv_async_event, ibv_context, ibv_cq},
    wait::{may_end_here, wait_readable},
};

/// Subject of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    Cq(u32),
    Qp(u32),
    Srq(u32),
    Port,
    Device,
}

/// `ibv_event_type` and the subject of an event; `None` for one without a number in C.
fn translate(event: AsyncEvent) -> Option<(c_uint, Subject)> {
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

impl ContextInner {
    /// The next event about something of this context.
    fn take_async_event(&self) -> Option<ibv_async_event> {
        loop {
            let Some((event_type, subject)) = translate(self.events.poll()?) else { continue };
            let object = match subject {
                Subject::Cq(cq) => self.take_event(|objects| objects.cqs.get(&cq).copied()),
                Subject::Qp(qpn) => self.take_event(|objects| objects.qps.get(&qpn).copied()),
                Subject::Srq(srq) => self.take_event(|objects| objects.srqs.get(&srq).copied()),
                Subject::Port => {
                    return Some(ibv_async_event { element: Element { port_num: 1 }, event_type });
                }
                Subject::Device => {
                    return Some(ibv_async_event { element: Element { port_num: 0 }, event_type });
                }
            };
            if let Some(pointer) = object {
                // whichever kind it is of, it is a pointer in the same place
                return Some(ibv_async_event {
                    element: Element { cq: pointer as *mut ibv_cq },
                    event_type,
                });
            }
        }
    }
}

/// The thread may be cancelled while it waits: nothing needs to be dropped then.
pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    may_end_here();
    loop {
        let taken = {
            let _call = Call::begin();
            Ctx::get(context).map(|ctx| ctx.inner.take_async_event())
        };
        match taken {
            Ok(Some(taken)) => {
                *event = taken;
                return 0;
            }
            Ok(None) => {}
            Err(error) => return errno::minus_one("ibv_get_async_event", Err(error)),
        }
        if wait_readable((*context).async_fd) == -1 {
            return -1;
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let _call = Call::begin();
    // events of objects, which all start with their context
    if !matches!(
        (*event).event_type,
        IBV_EVENT_CQ_ERR..=IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_SRQ_ERR..=IBV_EVENT_QP_LAST_WQE_REACHED
    ) {
        return;
    }
    let object = (*event).element.cq;
    if let Ok(ctx) = Ctx::get(*object.cast::<*const ibv_context>()) {
        ctx.inner.acknowledge(object as usize, 1);
    }
}

export!(ibv_get_async_event, ibv_ack_async_event);
