use std::slice;

use roce_provider::{
    calls::Call,
    cm::ConnParam,
    transport::{addr::Qpn, qp::QpType},
};

use super::{
    event::acknowledge_last,
    get_event::{wait_after, wait_for_event},
    id::Id,
};
use crate::{hooks::check::records, prelude::*};

/// Most READs.
const ALL: u8 = u8::MAX;

unsafe fn bytes(at: *const c_void, length: u8) -> Vec<u8> {
    if at.is_null() {
        Vec::new()
    } else {
        slice::from_raw_parts(at.cast::<u8>(), length.into()).to_vec()
    }
}

/// Null means maximum values. `first` precedes the private data.
unsafe fn conn_param(
    id: *const rdma_cm_id,
    c: *const rdma_conn_param,
    first: Vec<u8>,
) -> ConnParam {
    let Some(c) = c.as_ref() else {
        return ConnParam {
            private_data: first,
            responder_resources: ALL,
            initiator_depth: ALL,
            ..ConnParam::default()
        };
    };
    ConnParam {
        private_data: [first, bytes(c.private_data, c.private_data_len)].concat(),
        responder_resources: c.responder_resources,
        initiator_depth: c.initiator_depth,
        flow_control: c.flow_control != 0,
        retry_count: c.retry_count.min(7),
        rnr_retry_count: c.rnr_retry_count.min(7),
        srq: c.srq != 0,
        qpn: (*id).qp.is_null().then(|| Qpn::new(c.qp_num)),
    }
}

waiting_calls!(
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
        wait_after(id, || {
            let object = Id::get(id)?;
            let first = object.settings().connect.clone();
            Ok(object.cm()?.connect(&conn_param(id, param, first))?)
        })
    }

    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
        if accept(id, param)? {
            return wait_for_event(id);
        }
        acknowledge_last(id);
        Ok(())
    }

    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
        wait_after(id, || {
            Id::get(id)?.cm()?.disconnect()?;
            records::disconnected(id as usize, true);
            let qp = (*id).qp;
            if !qp.is_null() {
                (*qp).state = IBV_QPS_ERR;
            }
            Ok(())
        })
    }
);

unsafe fn accept(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<bool> {
    let _call = Call::begin();
    let cm = Id::get(id)?.cm()?;
    cm.accept(&conn_param(id, param, Vec::new()))?;
    Ok(cm.qp_type() != QpType::Ud)
}

calls!(
    fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
        Ok(Id::get(id)?.cm()?.reject(&bytes(data, length))?)
    }

    fn rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
        Ok(Id::get(id)?.cm()?.reject_ece(&bytes(data, length))?)
    }

    /// Establishes the program's own queue pair.
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
        let object = Id::get(id)?;
        refuse_if(!(*id).qp.is_null(), Rule::IdHasObject)?;
        Ok(object.cm()?.establish()?)
    }

    fn rdma_notify(id: *mut rdma_cm_id, event: c_uint) -> c_int {
        let id = Id::get(id)?;
        refuse_if(event != IBV_EVENT_COMM_EST, Rule::Event)?;
        Ok(id.cm()?.notify()?)
    }

    /// Accepted but not sent: this adapter has no ECE options.
    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        let known = ece.as_ref().is_some_and(|ece| ece.vendor_id != 0 && ece.comp_mask == 0);
        let possible = Id::get(id).is_ok() && (*id).qp.is_null() && known;
        if possible { Ok(()) } else { Err(Errno::of(Rule::Ece)) }
    }

    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        let _ = Id::get(id)?;
        let ece = ece.as_mut().filter(|_| (*id).qp.is_null()).ok_or(Rule::Ece)?;
        *ece = ibv_ece::zeroed();
        Ok(())
    }
);
