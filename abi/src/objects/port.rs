use roce_provider::{
    AtomicCap, Context, DeviceAttr, GidType, PortAttr,
    calls::Call,
    transport::addr::{Gid, PKey},
};

use super::{context::Ctx, device::copy_text};
use crate::{export::export_private, prelude::*, translate::mtu};

/// sysfs's numbers, for `ibv_query_gid_type`.
const SYSFS_ROCE_V1: c_uint = 0;
const SYSFS_ROCE_V2: c_uint = 1;
const PORT_CAPS: u32 = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
/// Physical states.
const LINK_UP: u8 = 5;
const DISABLED: u8 = 3;

/// InfiniBand's codes for a rate in Mbit/s.
const fn width_and_speed(mbps: Option<u32>) -> (u8, u8) {
    const LANES_1: u8 = 1;
    const LANES_4: u8 = 2;
    match mbps {
        None | Some(..=2_500) => (LANES_1, 1),
        Some(..=5_000) => (LANES_1, 2),
        Some(..=10_000) => (LANES_1, 4),
        Some(..=25_000) => (LANES_1, 32),
        Some(..=40_000) => (LANES_4, 4),
        Some(..=50_000) => (LANES_1, 64),
        Some(..=100_000) => (LANES_4, 32),
        Some(..=200_000) => (LANES_4, 64),
        Some(_) => (LANES_4, 128),
    }
}

fn port_attr(port: &PortAttr) -> ibv_port_attr {
    let (active_width, active_speed) = width_and_speed(port.speed);
    ibv_port_attr {
        state: if port.active { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN },
        max_mtu: mtu::to_c(port.max_mtu),
        active_mtu: mtu::to_c(port.active_mtu),
        gid_tbl_len: port.gid_table_len.into(),
        port_cap_flags: port.cap_flags.unwrap_or(PORT_CAPS),
        max_msg_sz: port.max_message,
        bad_pkey_cntr: port.bad_pkeys as u32,
        qkey_viol_cntr: port.qkey_violations as u32,
        pkey_tbl_len: port.pkey_table_len,
        max_vl_num: port.max_vl_num,
        active_width,
        active_speed,
        phys_state: if port.active { LINK_UP } else { DISABLED },
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: IBV_QPF_GRH_REQUIRED,
        active_speed_ex: active_speed.into(),
        ..ibv_port_attr::zeroed()
    }
}

unsafe fn with_port_1<'a>(context: *mut ibv_context, port: u8) -> Result<&'a Ctx> {
    let ctx = Ctx::get(context)?;
    refuse_if(port != 1, Rule::Port)?;
    Ok(ctx)
}

pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    room: usize,
) -> c_int {
    call::control(CallId::ibv_query_port, || {
        let ctx = with_port_1(context, port)?;
        copy_sized(&port_attr(&ctx.inner.context.query_port()), attr, room);
        Ok(())
    })
}

/// For programs older than `port_cap_flags2`; the caller cleared the rest.
unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    query_port(context, port, attr, std::mem::offset_of!(ibv_port_attr, link_layer) + 1)
}

calls!(
    /// Unit: 100 Mbit/s.
    fn ibv_query_port_speed(context: *mut ibv_context, port: u32, to: *mut u64) -> c_int {
        let ctx = Ctx::get(context)?;
        refuse_if(port != 1 || to.is_null(), Rule::Port)?;
        // unknown: the slowest that `ibv_query_port` reports
        let mbps = ctx.inner.context.query_port().speed.unwrap_or(2_500);
        *to = u64::from(mbps) / 100;
        Ok(())
    }

    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
        Ctx::get(context).map(|ctx| *attr = device_attr(ctx))
    }

    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, to: *mut ibv_gid) -> c_int {
        let ctx = with_port_1(context, port)?;
        let index = u32::try_from(index).map_err(|_| Rule::Index)?;
        (*to).raw = gid(ctx, index)?.0;
        Ok(())
    }

    fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, to: *mut u16) -> c_int {
        let ctx = with_port_1(context, port)?;
        let index = u16::try_from(index).map_err(|_| Rule::Index)?;
        *to = ctx.inner.context.query_pkey(index).ok_or(Rule::Index)?.0.to_be();
        Ok(())
    }

    fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
        let ctx = with_port_1(context, port)?;
        let found = ctx.inner.context.find_pkey(PKey(u16::from_be(pkey)));
        Ok(c_int::from(found.ok_or(Rule::NoPKey)?))
    }
);

fn int(count: impl TryInto<c_int>) -> c_int {
    count.try_into().unwrap_or(c_int::MAX)
}

fn device_attr(ctx: &Ctx) -> ibv_device_attr {
    let attr = ctx.inner.context.query_device();
    let DeviceAttr { limits, .. } = attr;
    let mut c = ibv_device_attr {
        node_guid: ctx.dev.guid(),
        sys_image_guid: ctx.dev.guid(),
        max_mr_size: attr.max_mr_size,
        page_size_cap: attr.page_size_cap,
        vendor_id: attr.vendor_id,
        vendor_part_id: attr.vendor_part_id,
        hw_ver: attr.hw_ver,
        max_qp: int(limits.max_qp),
        max_qp_wr: int(limits.max_qp_wr),
        device_cap_flags: attr.device_cap_flags.bits() as c_uint,
        max_sge: int(limits.max_sge.min(limits.max_recv_sge)),
        max_sge_rd: int(attr.max_sge_rd),
        max_cq: int(limits.max_cq),
        max_cqe: int(limits.max_cqe),
        max_mr: int(limits.max_mr),
        max_pd: int(limits.max_pd),
        max_qp_rd_atom: attr.max_qp_rd_atom.into(),
        max_res_rd_atom: int(attr.max_res_rd_atom),
        max_qp_init_rd_atom: attr.max_qp_init_rd_atom.into(),
        atomic_cap: match attr.atomic_cap {
            AtomicCap::None => IBV_ATOMIC_NONE,
            // programs require this; few need atomicity with the CPU
            _ => IBV_ATOMIC_HCA,
        },
        max_mw: int(limits.max_mw),
        max_mcast_grp: int(limits.max_mcast_grp),
        max_mcast_qp_attach: int(limits.max_mcast_qp_attach),
        max_total_mcast_qp_attach: int(limits
            .max_mcast_grp
            .saturating_mul(limits.max_mcast_qp_attach)),
        max_ah: int(limits.max_ah),
        max_srq: int(limits.max_srq),
        max_srq_wr: int(attr.max_srq_wr),
        max_srq_sge: int(attr.max_srq_sge),
        max_pkeys: attr.max_pkeys,
        local_ca_ack_delay: attr.local_ca_ack_delay,
        phys_port_cnt: attr.phys_port_cnt,
        ..ibv_device_attr::zeroed()
    };
    copy_text(&mut c.fw_ver, attr.fw_ver);
    c
}

operations!(
    fn ibv_query_device_ex(
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        to: *mut ibv_device_attr_ex,
        room: usize,
    ) -> c_int {
        let ctx = Ctx::get(context)?;
        let has_more = input.as_ref().is_some_and(|input| input.comp_mask != 0);
        refuse_if(has_more || room < size_of::<ibv_device_attr>(), Rule::StructureSize)?;
        let attr = ctx.inner.context.query_device();
        let mut c = ibv_device_attr_ex {
            orig_attr: device_attr(ctx),
            completion_timestamp_mask: attr.completion_timestamp_mask,
            hca_core_clock: attr.hca_core_clock,
            device_cap_flags_ex: attr.device_cap_flags.bits()
                | IBV_DEVICE_FLUSH_GLOBAL
                | IBV_DEVICE_ATOMIC_WRITE,
            max_dm_size: attr.limits.max_dm_size as u64,
            xrc_odp_caps: attr.odp.xrc,
            phys_port_cnt_ex: attr.phys_port_cnt.into(),
            ..ibv_device_attr_ex::zeroed()
        };
        c.odp_caps.general_caps = attr.odp.general.into();
        c.odp_caps.per_transport_caps = [attr.odp.rc, attr.odp.uc, attr.odp.ud];
        c.cq_mod_caps.max_cq_count = attr.max_cq_count;
        c.cq_mod_caps.max_cq_period = attr.max_cq_period;
        copy_sized(&c, to, room);
        Ok(())
    }

    /// Clock of completion timestamps, all in `tv_nsec`, like other devices.
    fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
        let ctx = Ctx::get(context)?;
        let values = values.as_mut().ok_or(Rule::NullArgument)?;
        values.comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
        if values.comp_mask != 0 {
            let now = ctx.inner.context.query_clock().raw;
            (values.raw_clock.tv_sec, values.raw_clock.tv_nsec) = (0, now.as_nanos() as i64);
        }
        Ok(())
    }
);

fn gid(ctx: &Ctx, index: u32) -> Result<Gid> {
    let index = u16::try_from(index).map_err(|_| Rule::Index)?;
    ctx.inner.context.query_gid(index).ok_or(Errno::of(Rule::Index))
}

unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    to: *mut c_uint,
) -> c_int {
    let _call = Call::begin();
    let read = || {
        let ctx = with_port_1(context, port)?;
        gid(ctx, index)?;
        Ok(ctx.inner.context.gid_type(index as u16))
    };
    match read() {
        Ok(GidType::RoceV1) => *to = SYSFS_ROCE_V1,
        Ok(_) => *to = SYSFS_ROCE_V2,
        Err(error) => {
            call::fail("ibv_query_gid_type", &error);
            return -1;
        }
    }
    0
}

fn gid_entries(context: &Context) -> impl Iterator<Item = ibv_gid_entry> {
    context.query_gid_table().into_iter().map(|entry| ibv_gid_entry {
        gid: ibv_gid { raw: entry.gid.0 },
        gid_index: entry.index.into(),
        port_num: entry.port.into(),
        gid_type: match entry.gid_type {
            GidType::RoceV1 => IBV_GID_TYPE_ROCE_V1,
            _ => IBV_GID_TYPE_ROCE_V2,
        },
        ndev_ifindex: entry.interface,
    })
}

unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    room: usize,
) -> c_int {
    call::control(CallId::ibv_query_gid_ex, || {
        let ctx = Ctx::get(context)?;
        refuse_if(port != 1 || room < size_of::<ibv_gid_entry>(), Rule::StructureSize)?;
        refuse_if(flags != 0, Rule::EntryFlags)?;
        gid(ctx, index)?;
        let entry = gid_entries(&ctx.inner.context).find(|entry| entry.gid_index == index);
        copy_sized(&entry.ok_or(Rule::NoEntry)?, to, room);
        Ok(())
    })
}

unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    to: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    room: usize,
) -> isize {
    call::control(CallId::ibv_query_gid_table, || {
        let entries: Vec<_> = gid_entries(&Ctx::get(context)?.inner.context).collect();
        refuse_if(room < size_of::<ibv_gid_entry>(), Rule::StructureSize)?;
        refuse_if(flags != 0, Rule::EntryFlags)?;
        refuse_if(entries.len() > max, Rule::EntriesRoom)?;
        for (index, entry) in entries.iter().enumerate() {
            copy_sized(entry, to.byte_add(index * room), room);
        }
        Ok(entries.len() as isize)
    })
}

export!(ibv_query_port, _ibv_query_gid_ex, _ibv_query_gid_table);
export_private!(34: ibv_query_gid_type);
