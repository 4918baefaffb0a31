//! `rselect` on top of `rpoll`.

use std::{cell::RefCell, ffi::c_ulong, time::Duration};

use libc::{fd_set, pollfd, timeval};
use roce_rsocket::Deadline;

use super::{poll::poll_all, table};
use crate::prelude::*;

unsafe extern "C-unwind" {
    /// Unwinds, unlike libc's: a cancellation point.
    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int;
}

thread_local! {
    /// Descriptors of a call: see `poll`.
    static WANTED: RefCell<Vec<pollfd>> = const { RefCell::new(Vec::new()) };
}

const READ: i16 = libc::POLLIN | libc::POLLHUP | libc::POLLERR;
const WRITE: i16 = libc::POLLOUT | libc::POLLERR;

/// Descriptor sets, possibly beyond `FD_SETSIZE`.
#[derive(Clone, Copy)]
struct Sets([*mut fd_set; 3]);

impl Sets {
    const WORD: usize = c_ulong::BITS as usize;

    unsafe fn has(self, set: usize, descriptor: usize) -> bool {
        let words = self.0[set].cast::<c_ulong>();
        !words.is_null()
            && *words.add(descriptor / Self::WORD) >> (descriptor % Self::WORD) & 1 != 0
    }

    unsafe fn leave(self, set: usize, descriptor: usize, stays: bool) {
        if self.has(set, descriptor) && !stays {
            let word = self.0[set].cast::<c_ulong>().add(descriptor / Self::WORD);
            *word &= !(1 << (descriptor % Self::WORD));
        }
    }

    unsafe fn wanted(self, count: usize) -> (*mut pollfd, usize) {
        WANTED.with_borrow_mut(|list| {
            list.clear();
            for descriptor in 0..count {
                let asked = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
                let events = (0..3).filter(|set| self.has(*set, descriptor)).map(|set| asked[set]);
                let events = events.fold(0, |all, bits| all | bits);
                if events != 0 {
                    list.push(pollfd { fd: descriptor as c_int, events, revents: 0 });
                }
            }
            (list.as_mut_ptr(), list.len())
        })
    }

    unsafe fn keep_ready(self) -> Result<c_int> {
        WANTED.with_borrow(|list| {
            refuse_if(list.iter().any(|one| one.revents & libc::POLLNVAL != 0), Rule::NotARsocket)?;
            let mut count = 0;
            for one in list {
                for (set, ready) in [READ, WRITE, libc::POLLPRI].into_iter().enumerate() {
                    self.leave(set, one.fd as usize, one.revents & ready != 0);
                    count += c_int::from(self.has(set, one.fd as usize));
                }
            }
            Ok(count)
        })
    }
}

waiting_calls!(
    fn rselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        if table::is_empty() {
            return Ok(select(count, read, write, except, timeout));
        }
        let sets = Sets([read, write, except]);
        let count = usize::try_from(count).map_err(|_| Rule::SocketArgument)?;
        let limit = match timeout.as_ref() {
            None => None,
            Some(timeval { tv_sec, tv_usec }) => {
                let seconds = u64::try_from(*tv_sec).map_err(|_| Rule::SocketArgument)?;
                let rest = u64::try_from(*tv_usec).map_err(|_| Rule::SocketArgument)?;
                Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(rest)))
            }
        };
        let (list, length) = sets.wanted(count);
        let end = Deadline::after(limit);
        let result = poll_all(list, length, limit);
        if let (Some(timeout), Some(left)) = (timeout.as_mut(), end.left()) {
            // like Linux
            (timeout.tv_sec, timeout.tv_usec) = (left.as_secs() as _, left.subsec_micros().into());
        }
        result?;
        sets.keep_ready()
    }
);
