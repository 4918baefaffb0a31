//! Names, rates, calls without effect.

use std::{
    ffi::{CStr, OsStr},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use crate::{export::export_private, hooks::check::forks, prelude::*};

const UNKNOWN: &CStr = c"unknown";

/// Names of an enum's numbers, from 0 on.
macro_rules! names {
    ($($function:ident: $($name:expr),*;)*) => {
        $(extern "C" fn $function(number: c_int) -> *const c_char {
            const NAMES: &[&CStr] = &[$($name),*];
            let name = usize::try_from(number).ok().and_then(|index| NAMES.get(index));
            name.unwrap_or(&UNKNOWN).as_ptr()
        })*
    };
}

names! {
    ibv_wc_status_str:
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous";
    ibv_event_type_str:
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
        c"Device link speed change";
    ibv_wr_opcode_str:
        c"rdma-write",
        c"rdma-write-with-imm",
        c"send",
        c"send-with-imm",
        c"rdma-read",
        c"atomic-cmp-and-swp",
        c"atomic-fetch-and-add",
        c"local-inv",
        c"bind-mw",
        c"send-with-inv",
        c"tso",
        c"driver1",
        UNKNOWN,
        UNKNOWN,
        c"flush",
        c"atomic-write";
    ibv_port_state_str:
        c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer";
    ibv_node_type_str:
        UNKNOWN,
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified";
}

/// `enum ibv_rate` from 2: Mbit/s, and multiples of 2.5 Gbit/s.
const RATES: [(c_int, c_int); 23] = [
    (2_500, 1),
    (10_000, 4),
    (30_000, 12),
    (5_000, 2),
    (20_000, 8),
    (40_000, 16),
    (60_000, 24),
    (80_000, 32),
    (120_000, 48),
    (14_062, -1),
    (56_250, -1),
    (112_500, -1),
    (168_750, -1),
    (25_781, -1),
    (103_125, -1),
    (206_250, -1),
    (309_375, -1),
    (28_125, 11),
    (53_125, 20),
    (425_000, 160),
    (637_500, 240),
    (850_000, 320),
    (1_275_000, 480),
];

fn rate(code: c_int) -> (c_int, c_int) {
    code.checked_sub(2).and_then(|index| RATES.get(index as usize)).copied().unwrap_or((-1, -1))
}

/// Code of a rate; 0, the greatest, if unknown.
fn code(is_it: impl Fn(&(c_int, c_int)) -> bool) -> c_int {
    RATES.iter().position(is_it).map_or(0, |index| index as c_int + 2)
}

extern "C" fn ibv_rate_to_mbps(code: c_int) -> c_int {
    rate(code).0
}

extern "C" fn ibv_rate_to_mult(code: c_int) -> c_int {
    rate(code).1
}

extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    code(|rate| rate.0 == mbps)
}

extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    code(|rate| rate.1 == mult && mult > 0)
}

calls!(
    /// No device bypasses the kernel's copy-on-write.
    fn ibv_fork_init() -> c_int {
        forks::prepared();
        Ok(())
    }

    fn ibv_dontfork_range(_address: *mut c_void, _size: usize) -> c_int {
        Ok(())
    }

    fn ibv_dofork_range(_address: *mut c_void, _size: usize) -> c_int {
        Ok(())
    }

    /// Drops the last newline; returns the length.
    fn ibv_read_sysfs_file(
        directory: *const c_char,
        file: *const c_char,
        buffer: *mut c_char,
        size: usize,
    ) -> c_int {
        let path =
            |text: *const c_char| Path::new(OsStr::from_bytes(CStr::from_ptr(text).to_bytes()));
        let mut bytes = std::fs::read(path(directory).join(path(file)))?;
        bytes.truncate(size);
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        if bytes.len() < size {
            buffer.add(bytes.len()).write(0);
        }
        Ok(bytes.len() as c_int)
    }

    /// ECE is for adapters of one vendor.
    fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
        *ece = ibv_ece::zeroed();
        Err::<(), _>(Errno::of(Rule::NotSupported))
    }

    fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
        Err::<(), _>(Errno::of(Rule::NotSupported))
    }

    /// The system resolves Ethernet addresses, and does not report them.
    fn ibv_resolve_eth_l2_from_gid(
        _context: *mut ibv_context,
        _attr: *mut ibv_ah_attr,
        _mac: *mut u8,
        _vlan: *mut u16,
    ) -> c_int {
        Err::<(), _>(Errno::of(Rule::NotSupported))
    }

    /// DMA handles are PCIe hints: none without DMA.
    fn ibv_alloc_dmah(_: *mut ibv_context, _: *mut c_void) -> *mut c_void {
        Err::<*mut c_void, _>(Errno::of(Rule::NotSupported))
    }

    fn ibv_dealloc_dmah(_: *mut c_void) -> c_int {
        Err::<(), _>(Errno::of(Rule::NotSupported))
    }
);

extern "C" fn ibv_is_fork_initialized() -> c_int {
    forks::knows();
    IBV_FORK_UNNEEDED
}

extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// A message's bytes may appear in any order.
extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _operation: c_uint,
    _flags: u32,
) -> c_int {
    0
}

export!(
    ibv_wc_status_str,
    ibv_event_type_str,
    ibv_port_state_str,
    ibv_node_type_str,
    ibv_rate_to_mbps,
    ibv_rate_to_mult,
    mbps_to_ibv_rate,
    mult_to_ibv_rate,
    ibv_is_fork_initialized,
    ibv_get_sysfs_path,
    ibv_query_qp_data_in_order
);
export_private!(34: ibv_wr_opcode_str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_come_back() {
        for code in 2..=24 {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(code)), code);
            let mult = ibv_rate_to_mult(code);
            assert_eq!(mult_to_ibv_rate(mult), if mult == -1 { 0 } else { code });
        }
        assert_eq!((ibv_rate_to_mbps(0), ibv_rate_to_mbps(25), mbps_to_ibv_rate(-1)), (-1, -1, 0));
    }

    /// As in a kernel that copies pinned pages on fork.
    #[test]
    fn forks_need_no_preparation() {
        assert_eq!(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
        let nowhere = std::ptr::null_mut();
        // SAFETY: Nothing is accessed.
        unsafe {
            assert_eq!((ibv_fork_init(), ibv_is_fork_initialized()), (0, IBV_FORK_UNNEEDED));
            assert_eq!((ibv_dontfork_range(nowhere, 1), ibv_dofork_range(nowhere, 1)), (0, 0));
        }
    }

    #[test]
    fn numbers_without_a_name_are_unknown() {
        for number in [-1, 24, c_int::MAX, c_int::MIN] {
            // SAFETY: a text of ours
            assert_eq!(unsafe { CStr::from_ptr(ibv_wc_status_str(number)) }, UNKNOWN);
        }
    }
}
