//! Schema of profiles: sections, keys, values.

use derive_more::Display;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

#[derive(Clone, Copy, Debug, Display)]
pub(super) enum ValueType {
    /// Non-empty text up to this many bytes.
    #[display("a text of 1 to {_0} bytes, in quotes")]
    Text(usize),
    #[display("one of \"{}\"", _0.join("\", \""))]
    OneOf(&'static [&'static str]),
    /// A device name with `{}` for its number.
    #[display(
        "a name of letters, digits and _ with {{}} for the number of the device, such as \
         \"mlx5_{{}}\""
    )]
    Names,
    #[display("a number from {_0} to {_1}")]
    Number(u64, u64),
    #[display("true or false")]
    Flag,
}

const POSITIVE: ValueType = ValueType::Number(1, 0x7FFF_FFFF);
const COUNT: ValueType = ValueType::Number(0, 0x7FFF_FFFF);
const BITS_16: ValueType = ValueType::Number(0, 0xFFFF);
const BITS_32: ValueType = ValueType::Number(0, 0xFFFF_FFFF);
const BITS_63: ValueType = ValueType::Number(0, u64::MAX);
const ERRNO: ValueType =
    ValueType::OneOf(&["EINVAL", "ENOMEM", "ENOSPC", "EOPNOTSUPP", "EOVERFLOW", "EBUSY", "E2BIG"]);

macro_rules! sections {
    ($($section:ident { $($($key:ident)+: $takes:expr;)+ })+) => {
        pub(super) const SECTIONS: &[(&str, &[(&str, ValueType)])] = &[
            $((stringify!($section), &[$($((stringify!($key), $takes),)+)+]),)+
        ];
    };
}

sections! {
    device {
        names: ValueType::Names;
        devices: ValueType::Number(1, 8);
        counters: ValueType::OneOf(&["mlx5", "rxe", "none"]);
        fw_ver board_id hca_type: ValueType::Text(63);
        vendor_id vendor_part_id: BITS_32;
        pci_vendor: BITS_16;
        hw_ver: BITS_32;
        num_comp_vectors: ValueType::Number(1, 4096);
        device_cap_flags: BITS_32;
        atomic_cap: ValueType::OneOf(&["none", "hca", "glob"]);
    }
    limits {
        max_mr_size page_size_cap: BITS_63;
        max_qp max_qp_wr max_sge max_send_sge max_recv_sge: POSITIVE;
        max_sge_rd max_inline_data: COUNT;
        max_cq max_cqe max_mr max_pd: POSITIVE;
        max_mw max_ah max_srq max_srq_wr max_srq_sge max_mcast_grp max_mcast_qp_attach: COUNT;
        max_qp_rd_atom max_qp_init_rd_atom: ValueType::Number(0, 255);
        max_res_rd_atom: COUNT;
        max_pkeys: BITS_16;
        local_ca_ack_delay: ValueType::Number(0, 31);
        max_cq_count max_cq_period: BITS_16;
        max_dm_size: BITS_63;
    }
    port {
        speed: ValueType::Number(1, 10_000_000);
        max_msg_sz port_cap_flags: BITS_32;
        max_vl_num: ValueType::Number(0, 8);
        gid_tbl_len: ValueType::Number(4, 65_535);
        roce_v1: ValueType::Flag;
    }
    odp {
        general rc uc ud xrc: BITS_32;
    }
    send_queue {
        bytes: ValueType::Number(64, 1 << 30);
        element: ValueType::Number(64, 1 << 16);
        unit: ValueType::Number(1, 4096);
        connected datagrams extended: ValueType::Number(0, 4096);
    }
    ack_timer {
        least: ValueType::Number(1, 31);
        percent: ValueType::Number(100, 10_000);
        constant: ValueType::Flag;
    }
    posting {
        early: ValueType::Flag;
    }
    completions {
        grh: ValueType::OneOf(&["datagrams", "receives"]);
    }
    errno {
        sizes objects missing: ERRNO;
    }
}
