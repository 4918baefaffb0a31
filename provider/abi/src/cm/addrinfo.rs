//! Names to addresses.

use std::{
    ffi::{c_char, c_int},
    ptr,
};

use libc::{addrinfo, sockaddr, socklen_t};
use roce_provider::cancel::Uncancelled;

use crate::{
    errno::{self, Errno, Result},
    export::export,
    layout::{consts::*, rdma_addrinfo},
    rule::Rule,
};

/// Types of queue pairs, as `rdma_addrinfo` has them.
const RC: c_int = IBV_QPT_RC as c_int;
const UD: c_int = IBV_QPT_UD as c_int;

/// Port space and type of queue pair. Hints may leave out either or both.
const fn service(port_space: c_int, qp_type: c_int) -> (c_int, c_int) {
    match (port_space, qp_type) {
        (0, 0 | RC) => (RDMA_PS_TCP, RC),
        (0, UD) => (RDMA_PS_UDP, UD),
        (0, other) => (RDMA_PS_IB, other),
        (RDMA_PS_UDP | RDMA_PS_IPOIB, 0) => (port_space, UD),
        (_, 0) => (port_space, RC),
        both => both,
    }
}

/// A copy of an address, for `rdma_freeaddrinfo`; null for null.
unsafe fn copy(address: *const sockaddr, length: socklen_t) -> *mut sockaddr {
    if address.is_null() || length == 0 {
        return ptr::null_mut();
    }
    let copy = libc::calloc(1, length as usize).cast::<sockaddr>();
    if !copy.is_null() {
        copy.cast::<u8>().copy_from_nonoverlapping(address.cast(), length as usize);
    }
    copy
}

/// Members that all results of one call share.
fn result(
    hints: &rdma_addrinfo,
    (ai_port_space, ai_qp_type): (c_int, c_int),
    family: c_int,
) -> rdma_addrinfo {
    rdma_addrinfo {
        ai_flags: hints.ai_flags,
        ai_family: family,
        ai_qp_type,
        ai_port_space,
        ..rdma_addrinfo::zeroed()
    }
}

unsafe fn set_src(info: &mut rdma_addrinfo, address: *const sockaddr, length: socklen_t) {
    info.ai_src_addr = copy(address, length);
    info.ai_src_len = if info.ai_src_addr.is_null() { 0 } else { length };
}

unsafe fn set_dst(info: &mut rdma_addrinfo, address: *const sockaddr, length: socklen_t) {
    info.ai_dst_addr = copy(address, length);
    info.ai_dst_len = if info.ai_dst_addr.is_null() { 0 } else { length };
}

unsafe fn append(end: &mut *mut *mut rdma_addrinfo, info: rdma_addrinfo) {
    let place: *mut rdma_addrinfo = libc::calloc(1, size_of::<rdma_addrinfo>()).cast();
    if place.is_null() {
        libc::free(info.ai_src_addr.cast());
        libc::free(info.ai_dst_addr.cast());
        return;
    }
    *place = info;
    **end = place;
    *end = &raw mut (*place).ai_next;
}

/// A list of addresses that nobody else has.
pub(super) struct AddressList(*mut rdma_addrinfo);

// SAFETY: It may be used on any thread.
unsafe impl Send for AddressList {}

impl AddressList {
    /// Hands it to the program.
    pub(super) fn into_raw(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for AddressList {
    fn drop(&mut self) {
        // SAFETY: It was made here.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

/// What an id has looked up.
#[derive(Default)]
pub(super) enum Addresses {
    #[default]
    None,
    /// A look-up is under way.
    Pending,
    /// The program has not asked for them yet.
    Found(AddressList),
}

/// [`rdma_getaddrinfo`], with its errors as numbers of `errno.h`.
pub(super) unsafe fn look_up(
    node: *const c_char,
    port: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<AddressList> {
    let mut found = ptr::null_mut();
    match rdma_getaddrinfo(node, port, hints, &raw mut found) {
        0 => Ok(AddressList(found)),
        -1 | libc::EAI_SYSTEM => Err(std::io::Error::last_os_error().into()),
        libc::EAI_AGAIN => Err(Errno::of(Rule::NameAgain)),
        libc::EAI_MEMORY => Err(Errno::of(Rule::NoMemory)),
        _ => Err(Errno::of(Rule::Name)),
    }
}

/// 0, or one of the errors of `getaddrinfo`.
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    port: *const c_char,
    hints: *const rdma_addrinfo,
    to: *mut *mut rdma_addrinfo,
) -> c_int {
    // not a call that a fork would have to wait for: a name's server may never answer
    let _uncancelled = Uncancelled::begin();
    if to.is_null() || node.is_null() && port.is_null() && hints.is_null() {
        return errno::minus_one("rdma_getaddrinfo", Err(Errno::of(Rule::NullArgument)));
    }
    let none = rdma_addrinfo::zeroed();
    let hints = hints.as_ref().unwrap_or(&none);
    let mut first = ptr::null_mut();
    let mut end = &raw mut first;
    if node.is_null() && port.is_null() {
        // nothing to look up: the hints are completed
        let service = service(hints.ai_port_space, hints.ai_qp_type);
        let mut info = result(hints, service, hints.ai_family);
        set_src(&mut info, hints.ai_src_addr, hints.ai_src_len);
        set_dst(&mut info, hints.ai_dst_addr, hints.ai_dst_len);
        append(&mut end, info);
    } else {
        let passive = hints.ai_flags & RAI_PASSIVE != 0;
        let mut wanted: addrinfo = std::mem::zeroed();
        wanted.ai_flags = if passive { libc::AI_PASSIVE } else { 0 };
        wanted.ai_flags |=
            if hints.ai_flags & RAI_NUMERICHOST != 0 { libc::AI_NUMERICHOST } else { 0 };
        wanted.ai_family = hints.ai_family;
        let mut service = service(hints.ai_port_space, hints.ai_qp_type);
        // each address once
        wanted.ai_socktype = if service.1 == UD { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
        let mut found = ptr::null_mut();
        let mut error = libc::getaddrinfo(node, port, &raw const wanted, &raw mut found);
        if error == libc::EAI_SERVICE && (hints.ai_port_space, hints.ai_qp_type) == (0, 0) {
            // one that has a name with datagrams only
            service = (RDMA_PS_UDP, UD);
            wanted.ai_socktype = libc::SOCK_DGRAM;
            error = libc::getaddrinfo(node, port, &raw const wanted, &raw mut found);
        }
        if error != 0 {
            return error;
        }
        let mut next = found;
        while let Some(one) = next.as_ref() {
            let mut info = result(hints, service, one.ai_family);
            if passive {
                set_src(&mut info, one.ai_addr, one.ai_addrlen);
            } else {
                set_dst(&mut info, one.ai_addr, one.ai_addrlen);
                let same_family = !hints.ai_src_addr.is_null()
                    && c_int::from((*hints.ai_src_addr).sa_family) == one.ai_family;
                if same_family {
                    set_src(&mut info, hints.ai_src_addr, hints.ai_src_len);
                }
            }
            append(&mut end, info);
            next = one.ai_next;
        }
        libc::freeaddrinfo(found);
    }
    if first.is_null() {
        return libc::EAI_MEMORY;
    }
    *to = first;
    0
}

pub(super) unsafe extern "C" fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) {
    let mut next = info;
    while !next.is_null() {
        let one = *next;
        libc::free(one.ai_src_addr.cast());
        libc::free(one.ai_dst_addr.cast());
        libc::free(one.ai_src_canonname.cast());
        libc::free(one.ai_dst_canonname.cast());
        libc::free(one.ai_route);
        libc::free(one.ai_connect);
        libc::free(next.cast());
        next = one.ai_next;
    }
}

export!(rdma_getaddrinfo, rdma_freeaddrinfo);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cm::address;

    #[test]
    fn hints_are_made_whole() {
        assert_eq!(service(0, 0), (RDMA_PS_TCP, RC));
        assert_eq!(service(0, UD), (RDMA_PS_UDP, UD));
        assert_eq!(service(0, 9), (RDMA_PS_IB, 9));
        assert_eq!(service(RDMA_PS_UDP, 0), (RDMA_PS_UDP, UD));
        assert_eq!(service(RDMA_PS_IPOIB, 0), (RDMA_PS_IPOIB, UD));
        assert_eq!(service(RDMA_PS_IB, 0), (RDMA_PS_IB, RC));
        assert_eq!(service(RDMA_PS_IB, UD), (RDMA_PS_IB, UD));
    }

    #[test]
    fn names_become_addresses() {
        let mut hints = rdma_addrinfo {
            ai_flags: RAI_PASSIVE,
            ai_family: libc::AF_INET,
            ..rdma_addrinfo::zeroed()
        };
        let mut found = ptr::null_mut();
        let look = |node: *const c_char,
                    port: *const c_char,
                    hints: &rdma_addrinfo,
                    found: &mut *mut rdma_addrinfo| {
            // SAFETY: Texts of C, or null, and places of our own.
            unsafe { rdma_getaddrinfo(node, port, hints, found) }
        };
        assert_eq!(look(ptr::null(), c"7471".as_ptr(), &hints, &mut found), 0);
        // SAFETY: It was just made; its addresses are whole or null.
        unsafe {
            assert_eq!(address::read((*found).ai_src_addr), Ok("0.0.0.0:7471".parse().unwrap()));
            assert!((*found).ai_dst_addr.is_null() && (*found).ai_next.is_null());
            assert_eq!(((*found).ai_src_len, (*found).ai_port_space), (16, RDMA_PS_TCP));
            rdma_freeaddrinfo(found);
        }
        hints.ai_flags = RAI_NUMERICHOST;
        assert_eq!(look(c"localhost".as_ptr(), ptr::null(), &hints, &mut found), libc::EAI_NONAME);
        hints.ai_qp_type = UD;
        assert_eq!(look(c"10.0.0.7".as_ptr(), c"5".as_ptr(), &hints, &mut found), 0);
        // SAFETY: As above.
        unsafe {
            assert_eq!(address::read((*found).ai_dst_addr), Ok("10.0.0.7:5".parse().unwrap()));
            assert_eq!(((*found).ai_port_space, (*found).ai_qp_type), (RDMA_PS_UDP, UD));
            rdma_freeaddrinfo(found);
        }
        // a service of datagrams, whether it is said that they are wanted or not
        let has_names = fs::read_to_string("/etc/services")
            .is_ok_and(|names| names.contains("69/udp") && !names.contains("69/tcp"));
        for qp_type in [0, UD].into_iter().filter(|_| has_names) {
            let hints = rdma_addrinfo { ai_qp_type: qp_type, ..rdma_addrinfo::zeroed() };
            assert_eq!(look(c"10.0.0.7".as_ptr(), c"tftp".as_ptr(), &hints, &mut found), 0);
            // SAFETY: As above.
            unsafe {
                assert_eq!(address::read((*found).ai_dst_addr), Ok("10.0.0.7:69".parse().unwrap()));
                assert_eq!(((*found).ai_port_space, (*found).ai_qp_type), (RDMA_PS_UDP, UD));
                rdma_freeaddrinfo(found);
            }
        }
        hints.ai_qp_type = RC;
        let port = c"no-such-service".as_ptr();
        assert_eq!(look(c"10.0.0.7".as_ptr(), port, &hints, &mut found), libc::EAI_SERVICE);
        let null = ptr::null();
        // SAFETY: Null is looked at first.
        assert_eq!(unsafe { rdma_getaddrinfo(null, null, ptr::null(), &raw mut found) }, -1);
    }
}
