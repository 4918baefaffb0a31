//! `rdma_getaddrinfo`.

use std::ptr;

use libc::{addrinfo, sockaddr, socklen_t};
use roce_provider::cancel::Uncancelled;

use crate::prelude::*;

const RC: c_int = IBV_QPT_RC as c_int;
const UC: c_int = IBV_QPT_UC as c_int;
const UD: c_int = IBV_QPT_UD as c_int;
const XRC_SEND: c_int = IBV_QPT_XRC_SEND as c_int;
const XRC_RECV: c_int = IBV_QPT_XRC_RECV as c_int;

/// Translates hints. `getaddrinfo` rejects mismatched types and port spaces.
unsafe fn wanted(hints: &rdma_addrinfo) -> addrinfo {
    let mut wanted: addrinfo = std::mem::zeroed();
    for (flag, like) in [(RAI_PASSIVE, libc::AI_PASSIVE), (RAI_NUMERICHOST, libc::AI_NUMERICHOST)] {
        wanted.ai_flags |= if hints.ai_flags & flag != 0 { like } else { 0 };
    }
    // no InfiniBand addresses here
    wanted.ai_family =
        if hints.ai_family == libc::AF_IB { libc::AF_UNSPEC } else { hints.ai_family };
    wanted.ai_socktype = match hints.ai_qp_type {
        RC | UC | XRC_SEND | XRC_RECV => libc::SOCK_STREAM,
        UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    wanted.ai_protocol = match hints.ai_port_space {
        RDMA_PS_TCP => libc::IPPROTO_TCP,
        RDMA_PS_UDP | RDMA_PS_IPOIB => libc::IPPROTO_UDP,
        _ => 0,
    };
    wanted
}

/// Queue pair type and port space; hints take precedence.
const fn service(hints: &rdma_addrinfo, socket: &addrinfo) -> (c_int, c_int) {
    let qp_type = match (hints.ai_qp_type, socket.ai_socktype) {
        (0, libc::SOCK_DGRAM) => UD,
        (0, _) => RC,
        (given, _) => given,
    };
    let port_space = match (hints.ai_port_space, socket.ai_protocol) {
        (0, libc::IPPROTO_UDP) => RDMA_PS_UDP,
        (0, _) => RDMA_PS_TCP,
        (given, _) => given,
    };
    (qp_type, port_space)
}

/// Null and 0 without an address or memory.
unsafe fn copy(address: *const sockaddr, length: socklen_t) -> (*mut sockaddr, socklen_t) {
    if address.is_null() || length == 0 {
        return (ptr::null_mut(), 0);
    }
    let copy = libc::calloc(1, length as usize).cast::<sockaddr>();
    if copy.is_null() {
        return (copy, 0);
    }
    copy.cast::<u8>().copy_from_nonoverlapping(address.cast(), length as usize);
    (copy, length)
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

pub(super) struct AddressList(*mut rdma_addrinfo);

// SAFETY: The list has no other owner.
unsafe impl Send for AddressList {}

impl AddressList {
    pub(super) fn into_raw(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for AddressList {
    fn drop(&mut self) {
        // SAFETY: Allocated by `find`.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

#[derive(Default)]
pub(super) enum Addresses {
    #[default]
    None,
    Pending,
    Found(AddressList),
}

/// [`rdma_getaddrinfo`] with `errno` values.
pub(super) unsafe fn look_up(
    node: *const c_char,
    port: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<AddressList> {
    let mut found = ptr::null_mut();
    match find(node, port, hints, &raw mut found)? {
        0 => Ok(AddressList(found)),
        libc::EAI_SYSTEM => Err(std::io::Error::last_os_error().into()),
        libc::EAI_AGAIN => Err(Errno::of(Rule::NameAgain)),
        libc::EAI_MEMORY => Err(Errno::of(Rule::NoMemory)),
        _ => Err(Errno::of(Rule::Name)),
    }
}

/// Returns 0 or an error of `getaddrinfo`.
unsafe fn find(
    node: *const c_char,
    port: *const c_char,
    hints: *const rdma_addrinfo,
    to: *mut *mut rdma_addrinfo,
) -> Result<c_int> {
    // no `Call`: a name server may never respond
    let _uncancelled = Uncancelled::begin();
    let has_none = node.is_null() && port.is_null() && hints.is_null();
    refuse_if(to.is_null() || has_none, Rule::NullArgument)?;
    let none = rdma_addrinfo::zeroed();
    let given = hints.as_ref();
    let hints = given.unwrap_or(&none);
    let mut first = ptr::null_mut();
    let mut end = &raw mut first;
    if node.is_null() && port.is_null() {
        // no names: return the hints
        let mut info = rdma_addrinfo {
            ai_flags: hints.ai_flags,
            ai_family: hints.ai_family,
            ai_qp_type: hints.ai_qp_type,
            ai_port_space: hints.ai_port_space,
            ..none
        };
        (info.ai_src_addr, info.ai_src_len) = copy(hints.ai_src_addr, hints.ai_src_len);
        (info.ai_dst_addr, info.ai_dst_len) = copy(hints.ai_dst_addr, hints.ai_dst_len);
        append(&mut end, info);
    } else {
        let wanted = given.map(|hints| wanted(hints));
        let wanted = wanted.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut found = ptr::null_mut();
        let error = libc::getaddrinfo(node, port, wanted, &raw mut found);
        if error != 0 {
            return Ok(error);
        }
        let ai_flags = hints.ai_flags & RAI_PASSIVE;
        let mut next = found;
        while let Some(one) = next.as_ref() {
            next = one.ai_next;
            // each address once, with its first socket type
            if one.ai_socktype != (*found).ai_socktype {
                continue;
            }
            let (ai_qp_type, ai_port_space) = service(hints, one);
            let ai_family = one.ai_family;
            let mut info = rdma_addrinfo { ai_flags, ai_family, ai_qp_type, ai_port_space, ..none };
            if ai_flags == 0 {
                (info.ai_src_addr, info.ai_src_len) = copy(hints.ai_src_addr, hints.ai_src_len);
                (info.ai_dst_addr, info.ai_dst_len) = copy(one.ai_addr, one.ai_addrlen);
            } else {
                (info.ai_src_addr, info.ai_src_len) = copy(one.ai_addr, one.ai_addrlen);
            }
            append(&mut end, info);
        }
        libc::freeaddrinfo(found);
    }
    if first.is_null() {
        return Ok(libc::EAI_MEMORY);
    }
    *to = first;
    Ok(0)
}

unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    port: *const c_char,
    hints: *const rdma_addrinfo,
    to: *mut *mut rdma_addrinfo,
) -> c_int {
    call::waiting(CallId::rdma_getaddrinfo, || find(node, port, hints, to))
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

    fn of_hints(qp_type: c_int, port_space: c_int) -> Result<(c_int, c_int), c_int> {
        let hints = rdma_addrinfo {
            ai_qp_type: qp_type,
            ai_port_space: port_space,
            ..rdma_addrinfo::zeroed()
        };
        let mut found = ptr::null_mut();
        // SAFETY: All pointers are valid.
        unsafe {
            match rdma_getaddrinfo(c"127.0.0.1".as_ptr(), c"5".as_ptr(), &hints, &raw mut found) {
                0 => {
                    let service = ((*found).ai_qp_type, (*found).ai_port_space);
                    assert!((*found).ai_next.is_null(), "the address is there once");
                    rdma_freeaddrinfo(found);
                    Ok(service)
                }
                error => Err(error),
            }
        }
    }

    /// As librdmacm of rdma-core 44.
    #[test]
    fn types_and_port_spaces_are_completed_and_have_to_agree() {
        const REFUSED: Result<(c_int, c_int), c_int> = Err(libc::EAI_SOCKTYPE);
        const DRIVER: c_int = IBV_QPT_DRIVER as c_int;
        let (tcp, udp, ipoib, ib) = (RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB);
        for (port_space, qp_type, completed) in [
            (0, RC, tcp),
            (tcp, RC, tcp),
            (udp, UD, udp),
            (ipoib, UD, ipoib),
            (ib, RC, ib),
            (5, RC, 5),
        ] {
            assert_eq!(of_hints(0, port_space), Ok((qp_type, completed)), "{port_space:#x}");
        }
        for connected in [RC, UC, XRC_SEND, XRC_RECV] {
            for (given, completed) in [(0, tcp), (tcp, tcp), (ib, ib), (5, 5)] {
                assert_eq!(of_hints(connected, given), Ok((connected, completed)), "{connected}");
            }
            assert_eq!((of_hints(connected, udp), of_hints(connected, ipoib)), (REFUSED, REFUSED));
        }
        for (given, completed) in [(0, udp), (udp, udp), (ipoib, ipoib), (ib, ib), (5, 5)] {
            assert_eq!(of_hints(UD, given), Ok((UD, completed)), "{given:#x}");
        }
        assert_eq!(of_hints(UD, tcp), REFUSED);
        for (given, completed) in [(0, tcp), (tcp, tcp), (udp, udp), (ipoib, ipoib), (ib, ib)] {
            assert_eq!(of_hints(DRIVER, given), Ok((DRIVER, completed)), "{given:#x}");
        }
    }

    #[test]
    fn without_anything_to_look_up_the_hints_come_back() {
        let mut address: libc::sockaddr_in = an_address();
        let hints = rdma_addrinfo {
            ai_flags: RAI_PASSIVE | RAI_NUMERICHOST,
            ai_src_addr: (&raw mut address).cast(),
            ai_src_len: 16,
            ai_route: (&raw mut address).cast(),
            ai_route_len: 8,
            ..rdma_addrinfo::zeroed()
        };
        let mut found = ptr::null_mut();
        // SAFETY: As above.
        unsafe {
            assert_eq!(rdma_getaddrinfo(ptr::null(), ptr::null(), &hints, &raw mut found), 0);
            let info = &*found;
            let service = (info.ai_family, info.ai_qp_type, info.ai_port_space);
            assert_eq!((info.ai_flags, service), (hints.ai_flags, (0, 0, 0)));
            assert_eq!(address::read(info.ai_src_addr), Ok("127.0.0.1:77".parse().unwrap()));
            assert!(info.ai_dst_addr.is_null() && info.ai_route.is_null());
            rdma_freeaddrinfo(found);
        }
    }

    #[test]
    fn flags_of_no_response_and_families_of_infiniband_are_omitted() {
        let mut address: libc::sockaddr_in = an_address();
        let hints = rdma_addrinfo {
            ai_flags: RAI_NUMERICHOST | 4 | 8, // RAI_NOROUTE, RAI_FAMILY
            ai_family: libc::AF_IB,
            ai_src_addr: (&raw mut address).cast(),
            ai_src_len: 16,
            ..rdma_addrinfo::zeroed()
        };
        let mut found = ptr::null_mut();
        // SAFETY: As above.
        unsafe {
            assert_eq!(rdma_getaddrinfo(c"::1".as_ptr(), c"5".as_ptr(), &hints, &raw mut found), 0);
            let info = &*found;
            assert_eq!((info.ai_flags, info.ai_family), (0, libc::AF_INET6));
            assert_eq!(address::read(info.ai_dst_addr), Ok("[::1]:5".parse().unwrap()));
            assert_eq!(address::read(info.ai_src_addr), Ok("127.0.0.1:77".parse().unwrap()));
            rdma_freeaddrinfo(found);
        }
        let hints = rdma_addrinfo { ai_flags: RAI_PASSIVE, ..hints };
        let mut found = ptr::null_mut();
        // SAFETY: As above.
        unsafe {
            assert_eq!(rdma_getaddrinfo(ptr::null(), c"5".as_ptr(), &hints, &raw mut found), 0);
            assert_eq!((*found).ai_flags, RAI_PASSIVE);
            assert_eq!(address::read((*found).ai_src_addr).map(|to| to.port()), Ok(5));
            rdma_freeaddrinfo(found);
        }
    }

    fn an_address() -> libc::sockaddr_in {
        libc::sockaddr_in {
            sin_family: libc::AF_INET as _,
            sin_port: 77u16.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_be_bytes([127, 0, 0, 1]).to_be() },
            sin_zero: [0; 8],
        }
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
            // SAFETY: Pointers are valid or null.
            unsafe { rdma_getaddrinfo(node, port, hints, found) }
        };
        assert_eq!(look(ptr::null(), c"7471".as_ptr(), &hints, &mut found), 0);
        // SAFETY: As above.
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
        // a datagram service, requested or not
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
        // SAFETY: Null is not read.
        assert_eq!(unsafe { rdma_getaddrinfo(null, null, ptr::null(), &raw mut found) }, -1);
    }
}
