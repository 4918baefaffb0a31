//! Programs with older headers, whose structures end with a page.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]

use std::{
    mem::offset_of,
    ptr::{null_mut, without_provenance_mut},
};

use libc::c_void;

use crate::{
    layout::{consts::*, *},
    objects::{
        cq::{ibv_create_cq, ibv_destroy_cq},
        cq_ex::ibv_create_cq_ex,
        domain::ibv_alloc_parent_domain,
        modify::ibv_modify_qp,
        mr::{ibv_dereg_mr, ibv_reg_mr},
        pd::ibv_dealloc_pd,
        post::post_send,
        qp::{ibv_destroy_qp, ibv_query_qp},
        qp_create::ibv_create_qp_ex,
        srq::{ibv_create_srq_ex, ibv_destroy_srq},
    },
    tests::{Allocated, Opened},
    translate::qp::QP_ATTR,
};

/// Two pages; the second is inaccessible.
struct Pages(*mut c_void);

impl Pages {
    fn new() -> Self {
        unsafe {
            let (kind, rights) =
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
            let page = rustix::param::page_size();
            let pages = libc::mmap(null_mut(), 2 * page, rights, kind, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages.byte_add(page), page, libc::PROT_NONE), 0);
            Self(pages)
        }
    }

    /// Places bytes at the first page's end.
    fn hold<T: Copy>(&self, value: T, length: usize) -> *mut T {
        unsafe {
            let place = self.0.byte_add(rustix::param::page_size() - length).cast::<T>();
            place.cast::<u8>().copy_from_nonoverlapping((&raw const value).cast(), length);
            place
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        assert_eq!(unsafe { libc::munmap(self.0, 2 * rustix::param::page_size()) }, 0);
    }
}

#[test]
fn what_is_behind_a_shorter_structure_is_not_touched() {
    let (context, pages) = (Opened::new(), Pages::new());
    let pd = Allocated::new(&context);
    unsafe {
        let attr = ibv_cq_init_attr_ex { cqe: 8, ..ibv_cq_init_attr_ex::zeroed() };
        let cq =
            ibv_create_cq_ex(context.0, pages.hold(attr, offset_of!(ibv_cq_init_attr_ex, flags)));
        assert!(!cq.is_null());
        let cq = cq.cast::<ibv_cq>();

        let attr = pd.init_attr(cq, ibv_qp_cap::zeroed());
        let attr = pages.hold(attr, offset_of!(ibv_qp_init_attr_ex, create_flags));
        let qp = ibv_create_qp_ex(context.0, attr);
        assert!(!qp.is_null());

        let attr = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 1, ..ibv_qp_attr::zeroed() };
        let attr = pages.hold(attr, QP_ATTR);
        let to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(ibv_modify_qp(qp, attr, to_init.cast_signed()), 0);
        assert_eq!(ibv_query_qp(qp, attr, IBV_QP_STATE.cast_signed(), null_mut()), 0);
        assert_eq!((*attr).qp_state, IBV_QPS_INIT);
        assert_eq!(ibv_destroy_qp(qp), 0);

        let attr = ibv_srq_init_attr_ex {
            attr: ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 },
            comp_mask: IBV_SRQ_INIT_ATTR_PD,
            pd: pd.0,
            ..ibv_srq_init_attr_ex::zeroed()
        };
        let attr = pages.hold(attr, offset_of!(ibv_srq_init_attr_ex, tm_cap));
        let srq = ibv_create_srq_ex(context.0, attr);
        assert!((*attr).attr.max_wr >= 4);
        assert_eq!(ibv_destroy_srq(srq), 0);

        let attr =
            ibv_parent_domain_init_attr { pd: pd.0, ..ibv_parent_domain_init_attr::zeroed() };
        let attr = pages.hold(attr, offset_of!(ibv_parent_domain_init_attr, alloc));
        assert_eq!(ibv_dealloc_pd(ibv_alloc_parent_domain(context.0, attr)), 0);
        assert_eq!(ibv_destroy_cq(cq), 0);
    }
}

#[test]
fn inline_data_is_copied_as_memory_that_may_be_registered() {
    let (context, pages) = (Opened::new(), Pages::new());
    let pd = Allocated::new(&context);
    unsafe {
        let cq = ibv_create_cq(context.0, 8, null_mut(), null_mut(), 0);
        let cap = ibv_qp_cap {
            max_send_wr: 4,
            max_recv_wr: 1,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let qp = ibv_create_qp_ex(context.0, &mut pd.init_attr(cq, cap));
        let mr = ibv_reg_mr(pd.0, pages.0, rustix::param::page_size(), 0); // enables fault handling
        let post = |address: u64| {
            let mut sge = ibv_sge { addr: address, length: 16, lkey: 0 };
            let mut wr = ibv_send_wr::zeroed();
            wr.opcode = IBV_WR_SEND;
            wr.send_flags = IBV_SEND_INLINE;
            (wr.sg_list, wr.num_sge) = (&raw mut sge, 1);
            let mut bad = without_provenance_mut(8);
            let status = post_send(qp, &raw mut wr, &raw mut bad);
            assert_eq!(bad, &raw mut wr, "it is in RESET");
            status
        };
        let start = pages.0 as u64;
        assert_eq!(post(start), libc::EINVAL);
        assert_eq!(post(start + rustix::param::page_size() as u64 - 8), libc::EFAULT);
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_cq(cq), 0);
    }
}
