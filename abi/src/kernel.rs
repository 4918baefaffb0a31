//! Kernel structures, for a librdmacm on the kernel.

use crate::prelude::*;

/// A structure with members of the same names, and others.
macro_rules! like {
    ($from:ident => $to:ident { $($same:ident)* } $($member:ident: $value:expr,)*) => {
        $to { $($same: $from.$same,)* $($member: $value,)* }
    };
}

fn ah_attr(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    let grh = &from.grh;
    like!(
        from => ibv_ah_attr { dlid sl src_path_bits static_rate is_global port_num }
        grh: like!(
            grh => ibv_global_route { flow_label sgid_index hop_limit traffic_class }
            dgid: ibv_gid { raw: grh.dgid },
        ),
    )
}

unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    to: *mut ibv_ah_attr,
    from: *const ib_uverbs_ah_attr,
) {
    *to = ah_attr(&*from);
}

unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    to: *mut ibv_qp_attr,
    from: *const ib_uverbs_qp_attr,
) {
    let from = &*from;
    *to = like!(
        from => ibv_qp_attr {
            qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num
            qp_access_flags pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic
            max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num
            alt_timeout
        }
        cap: like!(
            from => ibv_qp_cap {
                max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data
            }
        ),
        ah_attr: ah_attr(&from.ah_attr),
        alt_ah_attr: ah_attr(&from.alt_ah_attr),
        rate_limit: 0,
    );
}

unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    to: *mut ibv_sa_path_rec,
    from: *const ib_user_path_rec,
) {
    let from = &*from;
    *to = like!(
        from => ibv_sa_path_rec {
            dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector
            rate_selector rate packet_life_time_selector packet_life_time preference
        }
        dgid: ibv_gid { raw: from.dgid },
        sgid: ibv_gid { raw: from.sgid },
        raw_traffic: from.raw_traffic as i32,
        reversible: from.reversible as i32,
        mtu: from.mtu as u8,
    );
}

unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    to: *mut ib_user_path_rec,
    from: *const ibv_sa_path_rec,
) {
    let from = &*from;
    *to = like!(
        from => ib_user_path_rec {
            dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector
            rate_selector rate packet_life_time_selector packet_life_time preference
        }
        dgid: from.dgid.raw,
        sgid: from.sgid.raw,
        raw_traffic: from.raw_traffic as u32,
        reversible: from.reversible as u32,
        mtu: from.mtu.into(),
    );
}

export!(
    ibv_copy_ah_attr_from_kern,
    ibv_copy_qp_attr_from_kern,
    ibv_copy_path_rec_from_kern,
    ibv_copy_path_rec_to_kern
);
