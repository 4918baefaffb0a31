//! Contexts, and completions without traffic.

mod older;

use std::ffi::c_int;

use roce_provider::{
    QpInitAttr, QueuePair,
    transport::{
        qp::{Init, QpType},
        work::RecvWr,
    },
};

use crate::{
    layout::{
        consts::{IBV_QP_INIT_ATTR_PD, IBV_QPT_RC},
        ibv_context, ibv_cq, ibv_pd, ibv_qp_cap, ibv_qp_init_attr_ex,
    },
    objects::{command_file::CommandFile, context, cq::Cq, device, object::Object, pd, table},
};

/// Loopback; closed on drop.
pub(crate) struct Opened(pub(crate) *mut ibv_context);

impl Opened {
    pub(crate) fn new() -> Self {
        let dev = device::all()
            .into_iter()
            .find(|dev| dev.device().name() == "roce_lo")
            .expect("a loopback device");
        Self(table::open(dev.open(), CommandFile::new(dev).unwrap(), None).unwrap())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: Unused when a test ends.
        assert_eq!(unsafe { context::ibv_close_device(self.0) }, 0);
    }
}

/// Freed on drop.
pub(crate) struct Allocated(pub(crate) *mut ibv_pd);

impl Allocated {
    pub(crate) fn new(context: &Opened) -> Self {
        // SAFETY: An open context.
        Self(unsafe { pd::ibv_alloc_pd(context.0) })
    }

    /// For a reliable connection.
    pub(crate) fn init_attr(&self, cq: *mut ibv_cq, cap: ibv_qp_cap) -> ibv_qp_init_attr_ex {
        ibv_qp_init_attr_ex {
            send_cq: cq,
            recv_cq: cq,
            cap,
            qp_type: IBV_QPT_RC,
            comp_mask: IBV_QP_INIT_ATTR_PD,
            pd: self.0,
            ..ibv_qp_init_attr_ex::zeroed()
        }
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: Unused when a test ends.
        assert_eq!(unsafe { pd::ibv_dealloc_pd(self.0) }, 0);
    }
}

/// A queue pair in ERR, which flushes requests.
pub(crate) fn flushing(cq: *mut ibv_cq) -> QueuePair {
    // SAFETY: A live queue.
    let cq = unsafe { Cq::get(cq) }.unwrap();
    let pd = cq.ctx.context.alloc_pd().unwrap();
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq.cq)).unwrap();
    qp.to_init(Init::default()).unwrap();
    qp.to_error().unwrap();
    qp
}

pub(crate) fn flush(qp: &QueuePair, id: u64) {
    qp.post_recv(&[RecvWr::new(id, [])]).unwrap();
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}
