//! Endpoints: ids without a channel.

use std::{ptr, slice};

use roce_provider::{
    calls::Call,
    cm::EventKind,
    transport::{cm::PortSpace, qp::QpType},
};

use super::{
    event::acknowledge_last,
    get_event::{is_sync, next, wait_for_event},
    id::{Id, QpTemplate, port_space},
    lifecycle,
    queues::{create_plain_qp, rdma_destroy_qp, rdma_destroy_srq},
    resolve::{self, start_addr, start_route},
};
use crate::{prelude::*, translate::qp::type_from_c};

/// Milliseconds.
const TIMEOUT: c_int = 2000;

unsafe fn start(info: *const rdma_addrinfo) -> Result<*mut rdma_cm_id> {
    let _call = Call::begin();
    let info = info.as_ref().ok_or(Rule::NullArgument)?;
    let qp_type =
        if info.ai_qp_type == 0 { None } else { Some(type_from_c(info.ai_qp_type as c_uint)?) };
    let space = match (port_space(info.ai_port_space as c_uint)?, qp_type) {
        // rdma_getaddrinfo's default, wrong for these types
        (PortSpace::Tcp, Some(QpType::Uc | QpType::XrcInitiator | QpType::XrcTarget)) => {
            PortSpace::Ib
        }
        (space, _) => space,
    };
    let id = lifecycle::create(ptr::null_mut(), ptr::null_mut(), space, qp_type)?;
    if !info.ai_connect.is_null() {
        let connect = slice::from_raw_parts(info.ai_connect.cast::<u8>(), info.ai_connect_len);
        Id::get(id)?.settings().connect = connect.to_vec();
    }
    Ok(id)
}

unsafe fn listen_later(
    id: *mut rdma_cm_id,
    info: *const rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *const ibv_qp_init_attr,
) -> Result<()> {
    let _call = Call::begin();
    resolve::bind(id, (*info).ai_src_addr)?;
    let Some(attr) = attr.as_ref() else { return Ok(()) };
    Id::get(id)?.settings().template =
        Some(QpTemplate(ibv_qp_init_attr { qp_type: (*id).qp_type, ..*attr }));
    if !pd.is_null() {
        (*id).pd = pd;
    }
    Ok(())
}

unsafe fn prepare(
    id: *mut rdma_cm_id,
    info: *const rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    if (*info).ai_flags & RAI_PASSIVE != 0 {
        return listen_later(id, info, pd, attr);
    }
    start_addr(id, (*info).ai_src_addr, (*info).ai_dst_addr, TIMEOUT)?;
    wait_for_event(id)?;
    start_route(id, TIMEOUT)?;
    wait_for_event(id)?;
    let _call = Call::begin();
    let Some(attr) = attr.as_mut() else { return Ok(()) };
    attr.qp_type = (*id).qp_type;
    create_plain_qp(id, pd, attr)
}

waiting_calls!(
    fn rdma_create_ep(
        to: *mut *mut rdma_cm_id,
        info: *mut rdma_addrinfo,
        pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr,
    ) -> c_int {
        let id = start(info)?;
        if let Err(error) = prepare(id, info, pd, attr) {
            rdma_destroy_ep(id);
            return Err(error);
        }
        *to = id;
        Ok(())
    }

    fn rdma_get_request(listener: *mut rdma_cm_id, to: *mut *mut rdma_cm_id) -> c_int {
        refuse_if(to.is_null() || !is_sync(listener), Rule::Synchronous)?;
        acknowledge_last(listener);
        (*listener).event = next((*listener).channel)?;
        *to = take_request(listener).inspect_err(|_| acknowledge_last(listener))?;
        Ok(())
    }
);

calls!(
    fn rdma_destroy_ep(id: *mut rdma_cm_id) {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        let _ = lifecycle::destroy(id); // null
    }
);

/// Takes the id of the listener's last event.
unsafe fn take_request(listener: *mut rdma_cm_id) -> Result<*mut rdma_cm_id> {
    let _call = Call::begin();
    let event = *(*listener).event;
    if event.status != 0 {
        return Err(Errno::plain(event.status.saturating_abs()));
    }
    refuse_if(event.event != EventKind::ConnectRequest as c_uint, Rule::Event)?;
    let template = Id::get(listener)?.settings().template;
    if let Some(QpTemplate(mut attr)) = template {
        // the listener may listen on all devices
        let made = create_plain_qp(event.id, (*listener).pd, &mut attr);
        if let Err(error) = made {
            lifecycle::destroy(event.id)?;
            return Err(error);
        }
    }
    (*event.id).event = std::mem::replace(&mut (*listener).event, ptr::null_mut());
    Ok(event.id)
}
