//! Calls of the C interface that can fail, and their failure values.

use libc::c_int;
use strsim::levenshtein;

/// Return value of a failed call; `errno` is always set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Null.
    Null,
    /// Error number.
    Number,
    /// Negated error number.
    Negative,
    /// Value of the call, mostly -1.
    Value(c_int),
}

impl Failure {
    /// Value for an error.
    #[must_use]
    pub const fn value(self, errno: c_int) -> isize {
        match self {
            Self::Null => 0,
            Self::Number => errno as isize,
            Self::Negative => -(errno as isize),
            Self::Value(value) => value as isize,
        }
    }
}

/// Call that can fail.
#[derive(Clone, Copy, Debug)]
pub struct Failing {
    /// Name in C.
    pub name: &'static str,
    /// Failure value.
    pub failure: Failure,
    /// Default error.
    pub errno: c_int,
}

macro_rules! calls {
    ($($failure:expr, $errno:ident: $($name:ident)*;)*) => {
        /// Call that can fail, by C name.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, non_camel_case_types, reason = "they are the names in C")]
        #[non_exhaustive]
        pub enum CallId {
            $($($name,)*)*
        }

        const ALL: &[CallId] = &[$($(CallId::$name,)*)*];

        const CALLS: &[Failing] = &[$($(
            Failing { name: stringify!($name), failure: $failure, errno: libc::$errno },
        )*)*];
    };
}

const MINUS_ONE: Failure = Failure::Value(-1);

calls! {
    Failure::Null, ENODEV: ibv_open_device ibv_import_device;
    Failure::Null, ENOSYS: ibv_get_device_list;
    Failure::Null, ENOMEM:
        ibv_alloc_pd ibv_import_pd ibv_alloc_td ibv_alloc_parent_domain
        ibv_reg_mr ibv_reg_mr_iova ibv_reg_mr_iova2 ibv_reg_mr_ex ibv_reg_dm_mr ibv_reg_buf_mr
        ibv_reg_dmabuf_mr ibv_import_mr ibv_alloc_null_mr ibv_alloc_mw ibv_alloc_dm
        ibv_import_dm ibv_alloc_buf
        ibv_create_comp_channel ibv_create_cq ibv_create_cq_ex ibv_create_qp ibv_create_qp_ex
        ibv_open_qp ibv_create_srq ibv_create_srq_ex ibv_open_xrcd ibv_create_ah
        ibv_create_counters ibv_create_comp_cntr ibv_create_flow;
    Failure::Null, EINVAL: ibv_create_ah_from_wc;
    Failure::Null, EOPNOTSUPP: ibv_alloc_dmah;
    Failure::Number, EBUSY:
        ibv_dealloc_pd ibv_dereg_mr ibv_dealloc_mw ibv_dealloc_td ibv_free_dm ibv_close_xrcd
        ibv_destroy_ah ibv_destroy_comp_channel ibv_destroy_comp_cntr ibv_destroy_counters
        ibv_destroy_cq ibv_destroy_flow ibv_destroy_qp ibv_destroy_srq;
    Failure::Number, EINVAL:
        ibv_modify_qp ibv_modify_qp_rate_limit ibv_modify_cq ibv_modify_srq ibv_attach_mcast
        ibv_detach_mcast ibv_advise_mr ibv_attach_counters_point_flow ibv_bind_mw
        ibv_get_srq_num ibv_set_ece ibv_query_ece ibv_qp_attach_comp_cntr ibv_memcpy_to_dm
        ibv_memcpy_from_dm ibv_resolve_eth_l2_from_gid ibv_inc_comp_cntr ibv_inc_err_comp_cntr
        ibv_read_comp_cntr ibv_read_err_comp_cntr ibv_set_comp_cntr ibv_set_err_comp_cntr;
    Failure::Number, EOPNOTSUPP: ibv_query_comp_cntr_caps ibv_query_port_speed ibv_dealloc_dmah;
    Failure::Number, EIO:
        ibv_query_device ibv_query_device_ex ibv_query_port ibv_query_qp ibv_query_srq
        ibv_query_rt_values_ex ibv_read_counters ibv_query_gid_ex;
    Failure::Number, ENOMEM:
        ibv_resize_cq ibv_post_send ibv_post_recv ibv_post_srq_recv ibv_wr_complete;
    Failure::Number, EINVAL: ibv_req_notify_cq ibv_start_poll ibv_next_poll ibv_fork_init;
    Failure::Number, ENOSYS: ibv_dontfork_range ibv_dofork_range;
    Failure::Negative, EIO: ibv_query_gid_table;
    Failure::Value(-4), ENOMEM: ibv_rereg_mr; // IBV_REREG_MR_ERR_CMD
    MINUS_ONE, EIO:
        ibv_close_device ibv_query_gid ibv_query_pkey ibv_get_pkey_index ibv_poll_cq
        ibv_get_async_event ibv_get_cq_event;
    MINUS_ONE, ENOENT: ibv_read_sysfs_file;
    MINUS_ONE, EINVAL: ibv_init_ah_from_wc;
    MINUS_ONE, EOPNOTSUPP: ibv_dm_export_dmabuf_fd ibv_export_buf_dmabuf_fd;
    Failure::Null, ENODEV: rdma_create_event_channel rdma_get_devices;
    MINUS_ONE, ENOMEM:
        rdma_create_id rdma_create_ep rdma_create_qp rdma_create_qp_ex rdma_create_srq
        rdma_create_srq_ex;
    MINUS_ONE, EADDRINUSE: rdma_bind_addr rdma_listen;
    MINUS_ONE, ENODEV: rdma_resolve_addr;
    MINUS_ONE, EHOSTUNREACH: rdma_resolve_route;
    MINUS_ONE, EADDRNOTAVAIL:
        rdma_getaddrinfo rdma_resolve_addrinfo rdma_query_addrinfo;
    MINUS_ONE, EINVAL:
        rdma_destroy_id rdma_connect rdma_accept rdma_establish rdma_reject rdma_reject_ece
        rdma_disconnect rdma_notify rdma_ack_cm_event rdma_set_option rdma_migrate_id
        rdma_join_multicast rdma_join_multicast_ex rdma_leave_multicast rdma_init_qp_attr
        rdma_set_local_ece rdma_get_remote_ece rdma_write_cm_event;
    MINUS_ONE, EIO: rdma_get_cm_event rdma_get_request;
    MINUS_ONE, ENOMEM: rsocket riomap repoll_create;
    MINUS_ONE, EADDRINUSE: rbind rlisten;
    MINUS_ONE, ECONNREFUSED: rconnect;
    MINUS_ONE, ECONNABORTED: raccept;
    MINUS_ONE, ECONNRESET:
        rsend rsendto rsendmsg rwrite rwritev rrecv rrecvfrom rrecvmsg rread rreadv riowrite;
    MINUS_ONE, ENOTCONN: rshutdown rgetpeername;
    MINUS_ONE, EINVAL:
        rgetsockname rsetsockopt rgetsockopt rfcntl riounmap rpoll rselect repoll_ctl repoll_wait;
    MINUS_ONE, EIO: rclose;
}

const ANY: &str = "any";
const FAMILIES: &[&str] = &[
    "device", "pd", "mr", "mw", "dm", "ah", "cq", "qp", "srq", "xrcd", "channel", "post", "poll",
    "create", "destroy", "modify", "query", "rdma", "id",
];

impl CallId {
    /// All calls.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().copied()
    }

    /// Number of calls.
    pub const COUNT: usize = CALLS.len();

    /// Call with this C name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        // header functions call `_ibv_query_gid_ex` and others
        let name = name.strip_prefix('_').unwrap_or(name);
        Self::all().find(|call| call.name() == name)
    }

    /// Index in the table.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }

    /// C name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.failing().name
    }

    /// Table entry.
    #[must_use]
    pub const fn failing(self) -> &'static Failing {
        &CALLS[self.number()]
    }

    /// Calls of a name, with or without `ibv_` or `rdma_`, or of a family; empty if unknown.
    pub(super) fn named(word: &str) -> Vec<Self> {
        let prefixed =
            ["", "ibv_", "rdma_"].iter().find_map(|prefix| Self::of(&format!("{prefix}{word}")));
        if let Some(call) = prefixed.filter(|_| !word.starts_with('_')) {
            // A prefixed name means that function alone.
            let others = HEADER_ALIASES.iter().filter(|(of, _)| *of == call.name() && *of != word);
            return std::iter::once(call)
                .chain(others.filter_map(|(_, other)| Self::of(other)))
                .collect();
        }
        let concerns = |call: &Self| {
            word == ANY
                || FAMILIES.contains(&word) && call.name().split('_').any(|part| part == word)
        };
        Self::all().filter(concerns).collect()
    }

    pub(super) fn similar(word: &str) -> String {
        let word: String = word.chars().take(64).collect(); // no name is longer
        let distance = |name: &str| {
            levenshtein(&word, name).min(levenshtein(&word, name.trim_start_matches("rdma_")))
        };
        let mut names: Vec<_> =
            Self::all().map(|call| call.name().trim_start_matches("ibv_")).collect();
        names.sort_by_cached_key(|name| (distance(name), *name));
        names.truncate(3);
        format!("{}, or {ANY}, {}", names.join(", "), FAMILIES.join(", "))
    }
}

/// Functions that libibverbs' headers call instead: a name covers both.
const HEADER_ALIASES: &[(&str, &str)] = &[
    ("ibv_reg_mr", "ibv_reg_mr_iova2"),
    ("ibv_reg_mr_iova", "ibv_reg_mr_iova2"),
    ("ibv_create_qp", "ibv_create_qp_ex"),
    ("ibv_create_qp_ex", "ibv_create_qp"),
    ("ibv_create_srq", "ibv_create_srq_ex"),
    ("ibv_create_srq_ex", "ibv_create_srq"),
    ("ibv_query_device", "ibv_query_device_ex"),
    ("ibv_query_device_ex", "ibv_query_device"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_there_once() {
        for call in CallId::all() {
            assert_eq!(CallId::of(call.failing().name), Some(call));
            assert_eq!(ALL[call.number()], call);
        }
        assert_eq!(CallId::of("_ibv_query_gid_ex"), CallId::of("ibv_query_gid_ex"));
        assert_eq!(CallId::of("ibv_ack_cq_events"), None);
    }

    #[test]
    fn words_name_one_call_or_a_family() {
        let names = |word: &str| -> Vec<_> {
            CallId::named(word).into_iter().map(|call| call.failing().name).collect()
        };
        for word in ["create_cq", "ibv_create_cq"] {
            assert_eq!(names(word), ["ibv_create_cq"]);
        }
        assert_eq!(names("connect"), ["rdma_connect"]);
        assert_eq!(names("reg_mr"), ["ibv_reg_mr", "ibv_reg_mr_iova2"], "by the headers");
        assert_eq!(names("ibv_reg_mr"), ["ibv_reg_mr"]);
        assert_eq!(names("rsend"), ["rsend"]);
        assert_eq!(names("post"), ["ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv"]);
        assert_eq!(names("any").len(), CallId::COUNT);
        assert!(names("qp").contains(&"rdma_create_qp") && !names("qp").contains(&"ibv_create_cq"));
        for word in ["", "_", "ibv", "creat_cq", "_ibv_query_gid_ex"] {
            assert!(names(word).is_empty(), "{word}");
        }
        assert!(FAMILIES.iter().all(|family| !names(family).is_empty()));
        assert!(CallId::similar("creat_cq").starts_with("create_cq, "));
        let long = format!("x{}", "é".repeat(64));
        assert_eq!(CallId::similar(&long), CallId::similar(&format!("{long}modify_qp")));
    }
}
