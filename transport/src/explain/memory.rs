use crate::mem::{AccessError, WindowError};

reasons! {
    AccessError {
        Self::UnknownKey(0) => "unknown_key"
            "rkey is 0: an atomic takes wr.atomic.rkey and wr.atomic.remote_addr, a READ or WRITE \
             those of wr.rdma; the peer sends its mr->rkey before the first request";
        Self::UnknownKey(_) => "unknown_key"
            "check the key: lkey of the region for local elements, rkey for the peer, in host \
             byte order on both sides; each bind of a memory window makes a new rkey (mw->rkey); \
             a key of another device is unknown here";
        Self::SwappedKey(_) => "swapped_key"
            "the key has the wrong byte order: one side lacks ntohl or htonl";
        Self::LocalKey(_) => "lkey_as_rkey"
            "give the peer mr->rkey, not mr->lkey: they are equal only on some adapters";
        Self::Deregistered(_) => "deregistered_key"
            "ibv_dereg_mr or ibv_rereg_mr ran before the request: deregister after all \
             completions and after the peer is done; memory registered again has a new rkey";
        Self::ProtectionDomain(_) => "foreign_pd"
            "make the region and the queue pair from one ibv_pd";
        Self::Rights { .. } => "missing_right"
            "set access of ibv_reg_mr: IBV_ACCESS_LOCAL_WRITE for local receives, READs and \
             atomics, IBV_ACCESS_REMOTE_WRITE, _READ, _ATOMIC for operations of the peer";
        &Self::Bounds { address, start, size, .. } => "out_of_bounds" bounds(address, start, size);
        Self::Fault(_) => "memory_gone"
            "the memory was unmapped or freed, or its file truncated, while it was registered";
        Self::NotBound(_) => "window_not_bound"
            "ibv_bind_mw or IBV_WR_BIND_MW must complete before the peer uses the rkey; each bind \
             makes a new rkey (mw->rkey)";
        Self::QueuePair(_) => "foreign_window"
            "a type 2 window belongs to the queue pair that bound it: bind it on the queue pair \
             connected to the peer";
        Self::NotInvalidable(_) => "not_invalidable"
            "IBV_WR_LOCAL_INV and IBV_WR_SEND_WITH_INV take the rkey of a bound memory window of \
             type 2";
    }
}

/// Advice for an address outside a region.
const fn bounds(address: u64, start: u64, size: u64) -> &'static str {
    const LOWER: u64 = 0xFFFF_FFFF;
    const fn is_inside(address: u64, start: u64, size: u64) -> bool {
        address >= start && address - start < size
    }
    let is_truncated = address <= LOWER || address >= !(LOWER >> 1);
    let whole = (start & !LOWER) | (address & LOWER);
    if is_inside(address.swap_bytes(), start, size) {
        "the address has the wrong byte order: byte-swapped, it is in the region; one side lacks \
         be64toh or htobe64"
    } else if is_truncated && start > LOWER && is_inside(whole, start, size) {
        "the upper 32 bits of the address are lost: with those of the region's start it is in the \
         region; pass it as uint64_t, not int or unsigned"
    } else {
        "compare address and length with addr (or iova) and length of ibv_reg_mr; a zero-based \
         region starts at 0"
    }
}

reasons! {
    WindowError {
        Self::UnknownWindow(_) => "unknown_window" "bind_mw.mw must be a window of this device";
        Self::StillBound => "window_still_bound" "post IBV_WR_LOCAL_INV with its rkey first";
        Self::ProtectionDomain => "foreign_pd"
            "make the window, the region and the queue pair from one ibv_pd";
        Self::UnknownRegion(_) => "unknown_region" "bind_info.mr must still be registered";
        Self::NotAllowed => "no_mw_bind"
            "register the region with IBV_ACCESS_MW_BIND";
        Self::NeedsLocalWrite => "no_local_write" "register the region with IBV_ACCESS_LOCAL_WRITE";
        Self::Rights(_) => "window_rights"
            "mw_access_flags: IBV_ACCESS_REMOTE_* and IBV_ACCESS_ZERO_BASED";
        Self::Bounds { .. } => "out_of_bounds"
            "bind_info.addr and length must lie inside bind_info.mr";
        Self::Empty => "empty_window" "post IBV_WR_LOCAL_INV to invalidate a window of type 2";
        Self::ZeroBased => "zero_based" "use IBV_ACCESS_ZERO_BASED only with windows of type 2";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_spoilt_on_its_way_is_recognised() {
        const START: u64 = 0x7F12_9ABC_D000;
        let advice = |address: u64| bounds(address, START, 4096);
        let (other, cut) = ("wrong byte order", "upper 32 bits");
        for (address, wanted) in [
            ((START + 8).swap_bytes(), other),
            ((START + 8) & 0xFFFF_FFFF, cut),
            (0xFFFF_FFFF_9ABC_D008, cut),
            (START + 4096, "compare address and length"),
            (8, "compare address and length"),
        ] {
            assert!(advice(address).contains(wanted), "{address:#x}: {}", advice(address));
        }
    }
}
