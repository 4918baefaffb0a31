use std::time::Duration;

use libc::{linger, socklen_t, timeval};
use roce_rsocket::Settings;

use super::table::{self, Entry};
use crate::prelude::*;

/// librdmacm's queue options.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

unsafe fn given<T: Copy>(at: *const c_void, length: socklen_t) -> Result<T> {
    refuse_if(at.is_null(), Rule::SocketPointer)?;
    refuse_if((length as usize) < size_of::<T>(), Rule::SocketArgument)?;
    Ok(at.cast::<T>().read_unaligned())
}

/// `None`: none.
unsafe fn limit(at: *const c_void, length: socklen_t) -> Result<Option<Duration>> {
    let timeval { tv_sec, tv_usec } = given(at, length)?;
    let microseconds = u64::try_from(tv_usec).ok().filter(|microseconds| *microseconds < 1_000_000);
    let microseconds = microseconds.ok_or(Rule::SocketTime)?;
    // as in the kernel, negative means none
    let seconds = u64::try_from(tv_sec).unwrap_or_default();
    let limit = Duration::from_secs(seconds) + Duration::from_micros(microseconds);
    Ok(Some(limit).filter(|limit| !limit.is_zero()))
}

calls!(
    fn rsetsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        at: *const c_void,
        length: socklen_t,
    ) -> c_int {
        let entry = table::find(fd)?;
        let socket = &entry.socket;
        refuse_if(level == libc::IPPROTO_TCP && socket.is_datagram(), Rule::SocketOption)?;
        let value: c_int = given(at, length)?;
        let flag = value != 0;
        let number = || u32::try_from(value).map_err(|_| Errno::of(Rule::SocketArgument));
        let size = |set: fn(&mut Settings, u32)| -> Result<()> {
            let number = number()?;
            socket.change_settings(|settings| set(settings, number));
            Ok(())
        };
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let linger { l_onoff, l_linger } = given(at, length)?;
                let seconds = u32::try_from(l_linger).unwrap_or_default();
                entry.options.lock().linger = (l_onoff != 0, seconds);
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                entry.options.lock().receive_limit = limit(at, length)?;
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                entry.options.lock().send_limit = limit(at, length)?;
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => size(Settings::set_send_buffer)?,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => size(Settings::set_receive_buffer)?,
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => socket.set_reuse_addr(flag)?,
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => entry.options.lock().keepalive.0 = flag,
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => entry.options.lock().oob_inline = flag,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => entry.options.lock().no_delay = flag,
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                entry.options.lock().keepalive.1 = number()?.clamp(1, 32_767);
            }
            // the adapter retries by itself; the path decides the segment size
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT | libc::TCP_MAXSEG) => {
                number()?;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => socket.set_v6_only(flag)?,
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                socket.set_tos(u8::try_from(value).map_err(|_| Rule::SocketArgument)?);
            }
            (SOL_RDMA, RDMA_SQSIZE) => size(Settings::set_send_queue)?,
            (SOL_RDMA, RDMA_RQSIZE) => size(Settings::set_receive_queue)?,
            (SOL_RDMA, RDMA_INLINE) => size(Settings::set_inline)?,
            (SOL_RDMA, RDMA_IOMAPSIZE) => size(Settings::set_mappings)?,
            _ => return Err(Errno::of(Rule::SocketOption)),
        }
        Ok(())
    }

    fn rgetsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        at: *mut c_void,
        length: *mut socklen_t,
    ) -> c_int {
        let entry = table::find(fd)?;
        let options = *entry.options.lock();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (on, seconds) = options.linger;
                give(linger { l_onoff: on.into(), l_linger: seconds.cast_signed() }, at, length)
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => give(time(options.receive_limit), at, length),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => give(time(options.send_limit), at, length),
            _ => give(number(&entry, level, name)?, at, length),
        }
    }
);

unsafe fn give<T: Copy>(value: T, at: *mut c_void, length: *mut socklen_t) -> Result<()> {
    refuse_if(at.is_null() || length.is_null(), Rule::SocketPointer)?;
    let room = (*length as usize).min(size_of::<T>());
    std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast(), room);
    *length = room as socklen_t;
    Ok(())
}

fn time(limit: Option<Duration>) -> timeval {
    let time = limit.unwrap_or_default();
    timeval { tv_sec: time.as_secs() as _, tv_usec: time.subsec_micros().into() }
}

fn number(entry: &Entry, level: c_int, name: c_int) -> Result<c_int> {
    let (socket, options) = (&entry.socket, *entry.options.lock());
    let settings = socket.settings();
    let is_datagram = socket.is_datagram();
    refuse_if(is_datagram && level == libc::IPPROTO_TCP, Rule::SocketOption)?;
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            return Ok(socket.take_error()?.map_or(0, rustix::io::Errno::raw_os_error));
        }
        (libc::SOL_SOCKET, libc::SO_TYPE) if is_datagram => return Ok(libc::SOCK_DGRAM),
        (libc::SOL_SOCKET, libc::SO_TYPE) => return Ok(libc::SOCK_STREAM),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => return Ok(entry.family),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) if is_datagram => return Ok(libc::IPPROTO_UDP),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => return Ok(libc::IPPROTO_TCP),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => socket.is_listening().into(),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.send_buffer(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.receive_buffer(),
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => socket.reuse_addr().into(),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keepalive.0.into(),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.oob_inline.into(),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => socket.path_mtu(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.keepalive.1,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => 1,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => socket.v6_only().into(),
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            socket.tos().into()
        }
        (SOL_RDMA, RDMA_SQSIZE) => settings.send_queue(),
        (SOL_RDMA, RDMA_RQSIZE) => settings.receive_queue(),
        (SOL_RDMA, RDMA_INLINE) => settings.inline(),
        (SOL_RDMA, RDMA_IOMAPSIZE) => settings.mappings(),
        _ => return Err(Errno::of(Rule::SocketOption)),
    };
    Ok(c_int::try_from(number).unwrap_or(c_int::MAX))
}
