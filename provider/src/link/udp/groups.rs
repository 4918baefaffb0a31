//! Sockets of multicast groups: sockets bound to unicast addresses receive no multicast.

use std::{
    collections::BTreeMap,
    io,
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6},
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use roce_transport::addr::ROCE_UDP_PORT;
use rustix::event::epoll;
use socket2::{InterfaceIndexOrAddress, Socket};

use super::{bound_address::BoundAddress, message, options::SocketOptions, receive::Overflow};
use crate::link::{Preparation, epoll::ready, no_address_of_family};

/// Events per `epoll_wait`.
const READY: usize = 16;

/// One socket per group, bound to the group's address and limited to the link's interface: a
/// datagram that arrives by two would come twice. The kernel copies to every member socket of any
/// program.
pub(super) struct Groups {
    members: BTreeMap<u64, Member>,
    next: u64,
    /// Drops at sockets of left groups.
    drops_of_left: u64,
    /// Reports readable sockets; a constant descriptor for waiting threads.
    epoll: OwnedFd,
}

pub(super) struct Member {
    pub(super) group: IpAddr,
    pub(super) socket: Socket,
    pub(super) overflow: Overflow,
}

impl Groups {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { members: BTreeMap::new(), next: 0, drops_of_left: 0, epoll })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Joins on the interface of the first of `bound` in the group's family. Joining blocks while
    /// other processes change interfaces.
    pub(super) fn prepare(
        group: IpAddr,
        bound: &[BoundAddress],
        options: SocketOptions,
    ) -> Preparation<io::Error> {
        let bound = bound.iter().find(|bound| bound.address.is_ipv4() == group.is_ipv4());
        let own = bound.map(|bound| (bound.address, bound.interface));
        Box::new(move || {
            let (own, interface) = own.ok_or_else(no_address_of_family)?;
            Ok(Box::new(open(group, own, interface, &options)?))
        })
    }

    pub(super) fn join(&mut self, group: IpAddr, socket: Socket) -> io::Result<()> {
        if self.members.values().any(|member| member.group == group) {
            return Ok(());
        }
        let data = epoll::EventData::new_u64(self.next);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        let overflow = Overflow::of(&socket);
        self.members.insert(self.next, Member { group, socket, overflow });
        self.next += 1;
        Ok(())
    }

    /// Closing the socket leaves the group; queued datagrams are lost.
    pub(super) fn leave(&mut self, group: IpAddr) -> Option<Socket> {
        let key = *self.members.iter().find(|(_, member)| member.group == group)?.0;
        let member = self.members.remove(&key)?;
        self.drops_of_left += member.overflow.dropped;
        Some(member.socket)
    }

    pub(super) fn socket_drops(&self) -> u64 {
        let members = self.members.values().map(|member| member.overflow.dropped);
        self.drops_of_left + members.sum::<u64>()
    }

    pub(super) fn each_ready(
        &mut self,
        mut visit: impl FnMut(&mut Member) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut events = [const { MaybeUninit::uninit() }; READY];
        for number in ready(&self.epoll, &mut events)? {
            if let Some(member) = self.members.get_mut(&number) {
                visit(member)?;
            }
        }
        Ok(())
    }
}

/// The kernel reports the membership to the network (IGMP, MLD).
fn open(group: IpAddr, own: IpAddr, interface: u32, options: &SocketOptions) -> io::Result<Socket> {
    let socket = message::new_socket(group)?;
    options.set_receive_buffer(&socket);
    // Several programs may be members.
    message::named("SO_REUSEADDR", socket.set_reuse_address(true))?;
    message::configure(&socket, group.is_ipv6())?;
    match (group, own) {
        (IpAddr::V4(group), IpAddr::V4(own)) => {
            // IPv4 then filters by memberships.
            message::named("IP_MULTICAST_ALL", socket.set_multicast_all_v4(false))?;
            socket.bind(&SocketAddr::from(SocketAddrV4::new(group, ROCE_UDP_PORT)).into())?;
            let interface = match interface {
                0 => InterfaceIndexOrAddress::Address(own),
                index => InterfaceIndexOrAddress::Index(index),
            };
            socket.join_multicast_v4_n(&group, &interface)?;
        }
        (IpAddr::V6(group), _) => {
            // The IPv6 option compares only groups, on any interface.
            message::named("IPV6_MULTICAST_ALL", socket.set_multicast_all_v6(false))?;
            // unprivileged since Linux 5.7; index 0 is every interface
            let bound = socket.bind_device_by_index_v6(NonZeroU32::new(interface));
            message::named("SO_BINDTOIFINDEX", bound)?;
            let address = SocketAddrV6::new(group, ROCE_UDP_PORT, 0, interface);
            socket.bind(&SocketAddr::from(address).into())?;
            socket.join_multicast_v6(&group, interface)?;
        }
        // excluded by `prepare`
        (IpAddr::V4(_), IpAddr::V6(_)) => return Err(io::ErrorKind::AddrNotAvailable.into()),
    }
    Ok(socket)
}
