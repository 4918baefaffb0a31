use std::net::IpAddr;

use roce_provider::{
    calls::Call,
    cm::{CmEvent, EventChannel, EventKind, IdState, Status},
    transport::addr::Gid,
};

use super::{
    channel::Channel,
    event::{Event, acknowledge_last},
    id::Id,
    lifecycle, refusal,
    registry::{self, TakenEvent},
};
use crate::{
    hooks::check::{self, records, wake_ups::is_readable},
    objects::{object::Awaited, qp::ibv_attach_mcast},
    prelude::*,
    translate::address,
    wait::{Polled, is_blocking, test_cancel, wait_checked, wait_readable},
};

unsafe fn take(channel: &EventChannel) -> Option<*mut rdma_cm_event> {
    loop {
        let event = channel.poll()?;
        if let Some(event) = translate(&event) {
            return Some(event);
        }
    }
}

/// `None` if the id is being destroyed, or a request is refused because its id cannot be created.
unsafe fn translate(event: &CmEvent) -> Option<*mut rdma_cm_event> {
    let is_group = matches!(event.kind(), EventKind::MulticastJoin | EventKind::MulticastError);
    let group: Option<IpAddr> = event.ud().filter(|_| is_group).map(|ud| ud.av.dgid.to_ip());
    let taken = TakenEvent::new(event.listen_id().unwrap_or(event.id()), group)?;
    let mut c = rdma_cm_event::zeroed();
    (c.id, c.event, c.status) = (taken.id, event.kind() as c_uint, event.status().code());
    if event.listen_id().is_some() {
        (c.id, c.listen_id) = (request(event, taken.id).ok()?, taken.id);
    }
    let private_data: Box<[u8]> = event.private_data().into();
    let (data, length) = match private_data.len() {
        _ if is_group => (taken.context as *const c_void, 0),
        0 => (std::ptr::null(), 0),
        length => (private_data.as_ptr().cast(), length as u8),
    };
    let conn = event.conn().map_or(rdma_conn_param::zeroed(), |conn| rdma_conn_param {
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control.into(),
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
        srq: conn.srq.into(),
        qp_num: conn.qpn.unwrap_or_default().get(),
        ..rdma_conn_param::zeroed()
    });
    c.param.conn = rdma_conn_param { private_data: data, private_data_len: length, ..conn };
    if let Some(arg) = event.user_value() {
        c.param = EventParam { arg };
    }
    if let Some(ud) = event.ud() {
        let ah_attr = address::to_c(&ud.av);
        let ud = rdma_ud_param {
            private_data: data,
            private_data_len: length,
            ah_attr,
            qp_num: ud.qpn.get(),
            qkey: ud.qkey.0,
        };
        c.param = EventParam { ud };
    }
    refusal::explain(event);
    apply_event(event, &mut c, &taken);
    Some(Event::create_raw(c, private_data, taken))
}

unsafe fn request(event: &CmEvent, listener: *mut rdma_cm_id) -> Result<*mut rdma_cm_id> {
    let listens = Id::get(listener)?;
    let sync = listens.is_sync();
    let id = Id::create_raw(event.id(), (*listener).channel, (*listener).context);
    let done = Id::get(id)?
        .fill()
        .and_then(|()| if sync { lifecycle::migrate(id, std::ptr::null_mut()) } else { Ok(()) });
    if let Err(error) = done {
        lifecycle::destroy(id)?;
        return Err(error);
    }
    Ok(id)
}

/// Applies an event to its id and queue pair.
unsafe fn apply_event(event: &CmEvent, c: &mut rdma_cm_event, taken: &TakenEvent) {
    let qp = (*taken.id).qp;
    let state = |state: c_uint| {
        if !qp.is_null() {
            (*qp).state = state;
        }
    };
    match event.kind() {
        EventKind::AddrResolved | EventKind::RouteResolved => {
            let filled = Id::get(taken.id).and_then(Id::fill);
            if let Err(error) = filled {
                let failed = [EventKind::AddrError, EventKind::RouteError];
                let kind = failed[usize::from(event.kind() == EventKind::RouteResolved)];
                (c.event, c.status) = (kind as c_uint, -error.number());
            }
        }
        EventKind::Established if event.ud().is_none() => state(IBV_QPS_RTS),
        EventKind::Rejected | EventKind::ConnectError => state(IBV_QPS_ERR),
        EventKind::Disconnected => records::disconnected(taken.id as usize, false),
        EventKind::MulticastJoin if event.status() == Status::Success && taken.receives => {
            let joined = event.ud().map_or(Ok(()), |ud| attach(qp, ud.av.dgid));
            if let Err(error) = joined {
                (c.event, c.status) = (EventKind::MulticastError as c_uint, -error.number());
            }
        }
        _ => {}
    }
}

pub(super) unsafe fn attach(qp: *mut ibv_qp, group: Gid) -> Result<()> {
    if qp.is_null() {
        return Ok(());
    }
    match ibv_attach_mcast(qp, &ibv_gid { raw: group.0 }, 0) {
        0 => Ok(()),
        errno => Err(Errno::plain(errno)),
    }
}

/// Cancellation point.
///
/// A wait on a destroyed channel sleeps on, as in librdmacm; the next check gives `EBADF`.
pub(super) unsafe fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event> {
    test_cancel();
    let mut awaited = Awaited::default();
    loop {
        match try_take(channel, &mut awaited)? {
            Polled::Event(event) => return Ok(event),
            Polled::Nothing(descriptor) if check::is_on() && is_blocking(descriptor) => {
                wait_checked(descriptor, || endless(channel))?;
            }
            Polled::Nothing(descriptor) => wait_readable(descriptor)?,
        }
    }
}

/// Explains why the only thread waits forever.
unsafe fn endless(channel: *mut rdma_event_channel) -> Option<String> {
    let (own, others): (Vec<_>, Vec<_>) =
        registry::pointers().into_iter().partition(|id| (**id).channel == channel);
    if own.is_empty() {
        return Some("rdma_get_cm_event: no id uses the channel".to_owned());
    }
    let has_event = |id: &*const rdma_cm_id| {
        let descriptor = (*(**id).channel).fd;
        let state = Id::get(*id).and_then(Id::cm).map(|cm| cm.state());
        let is_over = matches!(state, Err(_) | Ok(IdState::Disconnected | IdState::Closed));
        !is_over && is_readable(descriptor)
    };
    others.iter().any(has_event).then(|| {
        "rdma_get_cm_event: no event is due, and one waits on another channel, that of its id"
            .to_owned()
    })
}

unsafe fn try_take(
    channel: *mut rdma_event_channel,
    awaited: &mut Awaited,
) -> Result<Polled<*mut rdma_cm_event>> {
    let _call = Call::begin();
    let (channel, descriptor) =
        Channel::share(channel, awaited, |c| (c.channel.clone(), (*channel).fd))?;
    Ok(Polled::of(take(&channel), descriptor))
}

pub(super) unsafe fn is_sync(id: *mut rdma_cm_id) -> bool {
    let _call = Call::begin();
    Id::get(id).is_ok_and(Id::is_sync)
}

/// Without a channel, waits for the call's event and skips earlier events.
pub(super) unsafe fn wait_for_event(id: *mut rdma_cm_id) -> Result<()> {
    if !is_sync(id) {
        return Ok(());
    }
    loop {
        acknowledge_last(id);
        (*id).event = next((*id).channel)?;
        let before = [EventKind::TimewaitExit as c_uint, EventKind::AddrChange as c_uint];
        if !before.contains(&(*(*id).event).event) {
            break;
        }
    }
    let event = *(*id).event;
    match event.status {
        0 => Ok(()),
        _ if event.event == EventKind::Rejected as c_uint => Err(Errno::plain(libc::ECONNREFUSED)),
        status => Err(Errno::plain(status.saturating_abs())),
    }
}

/// Starts, then [waits](wait_for_event). Cancellation point.
pub(super) unsafe fn wait_after(
    id: *mut rdma_cm_id,
    start: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let started = {
        let _call = Call::begin();
        start()
    };
    started?;
    wait_for_event(id)
}

waiting_calls!(
    fn rdma_get_cm_event(
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event,
    ) -> c_int {
        refuse_if(event.is_null(), Rule::NullArgument)?;
        *event = next(channel)?;
        Ok(())
    }
);
