//! Schema of profiles: sections, keys, values.

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    /// Non-empty text up to this many bytes.
    Text(usize),
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A device name with `{}` for its number.
    Names,
    /// A number in this range.
    Number(u64, u64),
    Flag,
}

const COUNT: Takes = Takes::Number(0, 0x7FFF_FFFF);
const BITS_32: Takes = Takes::Number(0, 0xFFFF_FFFF);
const BITS_63: Takes = Takes::Number(0, u64::MAX);
const ERRNO: Takes =
    Takes::OneOf(&["EINVAL", "ENOMEM", "ENOSPC", "EOPNOTSUPP", "EOVERFLOW", "EBUSY", "E2BIG"]);

pub(super) const SECTIONS: [(&str, &[(&str, Takes)]); 9] = [
    (
        "device",
        &[
            ("names", Takes::Names),
            ("devices", Takes::Number(1, 8)),
            ("counters", Takes::OneOf(&["mlx5", "rxe", "none"])),
            ("fw_ver", Takes::Text(63)),
            ("board_id", Takes::Text(63)),
            ("hca_type", Takes::Text(63)),
            ("vendor_id", BITS_32),
            ("vendor_part_id", BITS_32),
            ("pci_vendor", Takes::Number(0, 0xFFFF)),
            ("hw_ver", BITS_32),
            ("num_comp_vectors", Takes::Number(1, 4096)),
            ("device_cap_flags", BITS_32),
            ("atomic_cap", Takes::OneOf(&["none", "hca", "glob"])),
        ],
    ),
    (
        "limits",
        &[
            ("max_mr_size", BITS_63),
            ("page_size_cap", BITS_63),
            ("max_qp", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_qp_wr", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_sge", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_send_sge", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_recv_sge", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_sge_rd", COUNT),
            ("max_inline_data", COUNT),
            ("max_cq", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_cqe", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_mr", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_pd", Takes::Number(1, 0x7FFF_FFFF)),
            ("max_mw", COUNT),
            ("max_ah", COUNT),
            ("max_srq", COUNT),
            ("max_srq_wr", COUNT),
            ("max_srq_sge", COUNT),
            ("max_mcast_grp", COUNT),
            ("max_mcast_qp_attach", COUNT),
            ("max_qp_rd_atom", Takes::Number(0, 255)),
            ("max_qp_init_rd_atom", Takes::Number(0, 255)),
            ("max_res_rd_atom", COUNT),
            ("max_pkeys", Takes::Number(0, 0xFFFF)),
            ("local_ca_ack_delay", Takes::Number(0, 31)),
            ("max_cq_count", Takes::Number(0, 0xFFFF)),
            ("max_cq_period", Takes::Number(0, 0xFFFF)),
            ("max_dm_size", BITS_63),
        ],
    ),
    (
        "port",
        &[
            ("speed", Takes::Number(1, 10_000_000)),
            ("max_msg_sz", BITS_32),
            ("port_cap_flags", BITS_32),
            ("max_vl_num", Takes::Number(0, 8)),
            ("gid_tbl_len", Takes::Number(4, 65_535)),
            ("roce_v1", Takes::Flag),
        ],
    ),
    (
        "odp",
        &[
            ("general", BITS_32),
            ("rc", BITS_32),
            ("uc", BITS_32),
            ("ud", BITS_32),
            ("xrc", BITS_32),
        ],
    ),
    (
        "send_queue",
        &[
            ("bytes", Takes::Number(64, 1 << 30)),
            ("element", Takes::Number(64, 1 << 16)),
            ("unit", Takes::Number(1, 4096)),
            ("connected", Takes::Number(0, 4096)),
            ("datagrams", Takes::Number(0, 4096)),
            ("extended", Takes::Number(0, 4096)),
        ],
    ),
    (
        "ack_timer",
        &[
            ("least", Takes::Number(1, 31)),
            ("percent", Takes::Number(100, 10_000)),
            ("constant", Takes::Flag),
        ],
    ),
    ("posting", &[("early", Takes::Flag)]),
    ("completions", &[("grh", Takes::OneOf(&["datagrams", "receives"]))]),
    ("errno", &[("sizes", ERRNO), ("objects", ERRNO), ("missing", ERRNO)]),
];

impl std::fmt::Display for Takes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(most) => write!(f, "a text of 1 to {most} bytes, in quotes"),
            Self::OneOf(words) => write!(f, "one of \"{}\"", words.join("\", \"")),
            Self::Names => f.write_str(
                "a name of letters, digits and _ with {} for the number of the device, such as \
                 \"mlx5_{}\"",
            ),
            Self::Number(least, most) => write!(f, "a number from {least} to {most}"),
            Self::Flag => f.write_str("true or false"),
        }
    }
}
