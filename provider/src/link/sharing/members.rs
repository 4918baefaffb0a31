//! Sockets that bring datagrams to each process at a shared address without the owner.
//!
//! The address's UDP socket and these *member sockets* are a group (`SO_REUSEPORT`). The group's
//! packet filter looks up the partition of the destination queue pair and returns a socket's index.
//! Datagrams of other partitions go to index 0, the address's own socket, and the owner forwards
//! them.
//!
//! If a socket closed, the last one would take its place. All member sockets are therefore made
//! together and stay in the queue of a Unix socket that every process at the address has. A process
//! peeks at the queue and takes a copy of the socket at its claimed place.
//!
//! The filter sees only the first datagram of a merged run. A process forwards the others.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use roce_transport::share::IdPartition;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use socket2::{SockRef, Socket};

use crate::link::{
    descriptors::{MAX_DESCRIPTORS, peek_with, send_with},
    socket_option::set_option,
};

pub(in crate::link) type MakeSocket = Arc<dyn Fn(bool) -> io::Result<Socket> + Send + Sync>;

/// Number of member sockets, limited by one message. Further processes have none.
pub(super) const MEMBERS: usize = MAX_DESCRIPTORS;

/// Place of a member socket in its group, from 1 to [`MEMBERS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct MemberPlace(u8);

impl MemberPlace {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (1..=MEMBERS as u8).map(Self)
    }

    pub(super) const fn get(self) -> u8 {
        self.0
    }
}

/// Makes the member sockets of an address whose port nothing else shares. Returns a Unix socket
/// with all of them queued. Until a list is [attached](attach), everything goes to `first`. Errors:
/// no groups or filters in the system, or no more descriptors. Nothing changes then.
pub(super) fn make(first: &OwnedFd, make: &MakeSocket) -> io::Result<OwnedFd> {
    let made = try_make(first, make);
    if made.is_err() {
        let _ = SockRef::from(first).set_reuse_port(false);
    }
    made
}

fn try_make(first: &OwnedFd, make: &MakeSocket) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (from, queue) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    SockRef::from(first).set_reuse_port(true)?;
    let mut sockets = Vec::with_capacity(MEMBERS);
    for place in 0..MEMBERS {
        sockets.push(make(true)?);
        if place == 0 {
            // The group exists from here on. Datagrams wait in this socket for the process that
            // takes it.
            attach(first.as_fd(), &[])?;
        }
    }
    let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    send_with(&from, &[0], &descriptors)?;
    Ok(queue)
}

pub(super) fn socket(queue: &OwnedFd, place: MemberPlace) -> io::Result<Socket> {
    // receives all sockets, unless descriptors are short, and closes the others
    let (_, all) = peek_with(queue, &mut [0])?;
    let socket = all.into_iter().nth(usize::from(place.get()) - 1);
    socket.map(Socket::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Steers datagrams for these partitions to these places of the group, all others to the first
/// socket.
pub(super) fn attach(
    socket: BorrowedFd<'_>,
    members: &[(IdPartition, MemberPlace)],
) -> io::Result<()> {
    let mut filter = filter(members);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Filter from a UDP payload to a place; 0 for a datagram that is too short.
fn filter(members: &[(IdPartition, MemberPlace)]) -> Vec<libc::sock_filter> {
    /// Offset of the destination QPN, whose upper six bits are the partition.
    const DESTINATION_QP: u32 = 5;
    let instruction = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = vec![
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, DESTINATION_QP),
        instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 0, 2),
    ];
    for (partition, place) in members {
        let is_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(instruction(is_equal, 1, partition.get().into()));
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, place.get().into()));
    }
    filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0));
    filter
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use rustix::net::RecvFlags;
    use socket2::{Domain, Type};

    use super::*;
    use crate::link::partition;

    fn place(number: usize) -> MemberPlace {
        MemberPlace::all().nth(number - 1).unwrap()
    }

    fn packet(partition: u8) -> Vec<u8> {
        [&[4, 0x40, 0xFF, 0xFF, 0, partition << 2, 0, 1][..], &[partition; 32]].concat()
    }

    fn bound(to: SocketAddr, shared: bool) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
        socket.set_reuse_port(shared)?;
        socket.set_nonblocking(true)?;
        socket.bind(&to.into())?;
        Ok(socket)
    }

    fn first(address: IpAddr) -> (OwnedFd, SocketAddr, MakeSocket) {
        let socket = bound((address, 0).into(), false).unwrap();
        let to = socket.local_addr().unwrap().as_socket().unwrap();
        (socket.into(), to, Arc::new(move |_| bound(to, true)))
    }

    fn arrived(socket: &impl AsFd) -> Vec<u8> {
        let mut all = Vec::new();
        let mut bytes = [0; 64];
        while let Ok((length, _)) = rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            all.push(bytes[length - 1]);
        }
        all
    }

    fn send(to: SocketAddr, bytes: &[u8]) {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        bound((any, 0).into(), false).unwrap().send_to(bytes, &to.into()).unwrap();
    }

    #[test]
    fn a_datagram_comes_to_the_socket_of_its_partition() {
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let (own, to, make) = first(address);
            let members = super::make(&own, &make).unwrap();
            // another process has only the queue
            let theirs = members.try_clone().unwrap();
            let [low, high] = [1, MEMBERS].map(|number| socket(&theirs, place(number)).unwrap());
            let list = [(partition(7), place(1)), (partition(62), place(MEMBERS))];
            let sent = [0, 1, 6, 7, 8, 61, 62, 63];
            // the group has one filter, whichever socket attaches it
            for socket in [own.as_fd(), high.as_fd()] {
                attach(socket, &list).unwrap();
                sent.iter().for_each(|&partition| send(to, &packet(partition)));
                send(to, &[1, 2, 3, 4, 5]);
                assert_eq!(arrived(&own), [0, 1, 6, 8, 61, 63, 5], "{address}");
                assert_eq!((arrived(&low), arrived(&high)), (vec![7], vec![62]), "{address}");
            }
            attach(own.as_fd(), &[]).unwrap();
            sent.iter().for_each(|&partition| send(to, &packet(partition)));
            assert_eq!(arrived(&own), sent, "{address}");
            assert!(bound(to, false).is_err(), "others cannot have the port");
        }
    }

    #[test]
    fn the_filter_finds_each_partition() {
        for count in 0..=MEMBERS {
            let list: Vec<_> = MemberPlace::all()
                .take(count)
                .map(|place| (partition(63 - 3 * place.get()), place))
                .collect();
            let filter = filter(&list);
            for number in 0..=63 {
                let wanted = list.iter().find(|(partition, _)| partition.get() == number);
                let wanted = wanted.map_or(0, |(_, place)| u32::from(place.get()));
                assert_eq!(run(&filter, &packet(number)), wanted, "{number} among {count}");
            }
            assert_eq!(run(&filter, &[0; 5]), 0);
        }
    }

    /// Interprets a filter as the kernel does.
    fn run(filter: &[libc::sock_filter], payload: &[u8]) -> u32 {
        let (mut accumulator, mut at) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = filter[at];
            at += 1;
            match code {
                0x30 => match payload.get(k as usize) {
                    Some(&byte) => accumulator = u32::from(byte),
                    None => return 0,
                },
                0x74 => accumulator >>= k,
                0x15 => at += usize::from(if accumulator == k { jt } else { jf }),
                0x06 => return k,
                _ => panic!("instruction {code:#x}"),
            }
        }
    }

    /// Places stay when a process closes its copies, even the maker of the sockets.
    #[test]
    fn no_socket_changes_its_place() {
        let (own, to, make) = first(Ipv4Addr::LOCALHOST.into());
        let members = super::make(&own, &make).unwrap();
        let theirs = members.try_clone().unwrap();
        drop(socket(&members, place(1)));
        let last = socket(&theirs, place(MEMBERS)).unwrap();
        attach(own.as_fd(), &[(partition(9), place(MEMBERS))]).unwrap();
        drop(members);
        for round in 0..3 {
            drop(socket(&theirs, place(2 + round)));
            send(to, &packet(9));
            assert_eq!((arrived(&last), arrived(&own)), (vec![9], vec![]));
        }
        // datagrams wait while nobody has the socket
        drop(last);
        send(to, &packet(9));
        assert_eq!(arrived(&socket(&theirs, place(MEMBERS)).unwrap()), [9]);
    }

    #[test]
    fn an_address_without_members_is_as_before() {
        let (own, to, make) = first(Ipv4Addr::LOCALHOST.into());
        let fail: [MakeSocket; 2] = [Arc::new(|_| Err(io::ErrorKind::Unsupported.into())), {
            let left = std::sync::Mutex::new(3);
            Arc::new(move |_| {
                let mut left = left.lock().unwrap();
                *left -= 1;
                if *left == 0 { Err(io::ErrorKind::OutOfMemory.into()) } else { make(true) }
            })
        }];
        for make in fail {
            assert!(super::make(&own, &make).is_err());
            for number in 0..64 {
                send(to, &packet(number));
            }
            assert_eq!(arrived(&own).len(), 64);
            assert!(bound(to, true).is_err(), "others cannot have the port");
        }
    }
}
