//! Sockets for multicast groups. The link's other sockets are bound to its own addresses and hear
//! nothing that is sent to a group.

use std::{
    collections::BTreeMap,
    io,
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use roce_transport::addr::ROCE_UDP_PORT;
use rustix::event::{Timespec, epoll};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::{message, options::SocketOptions, port::Port, receive::Overflow};
use crate::link::Preparation;

/// Sockets that are looked at in one go.
const READY: usize = 16;

/// One socket per group. It is bound to the group's address, so that what it receives was sent
/// there; the system gives a copy to every socket that is bound so, of whatever program. It hears
/// one interface only, that of the link: a datagram that reaches the host by two would else come
/// twice.
pub(super) struct Groups {
    members: BTreeMap<u64, Member>,
    next: u64,
    /// Datagrams that the sockets of groups which were left have lost for want of room.
    drops_of_left: u64,
    /// Lists the sockets that have something, so that a receiver need not try each. Its descriptor
    /// never changes, so the link can hand it out to threads that wait.
    epoll: OwnedFd,
}

/// A group, and the socket that hears it.
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

    /// Readable when something has arrived for one of the groups.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Opens a socket that has joined a group, on the interface of the first of `ports` that is of
    /// its address family: a link's addresses are all on one. The system makes whoever joins wait
    /// while others change interfaces.
    pub(super) fn prepare(
        group: IpAddr,
        ports: &[Port],
        options: SocketOptions,
    ) -> Preparation<io::Error> {
        let port = ports.iter().find(|port| port.address.is_ipv4() == group.is_ipv4());
        let own = port.map(|port| (port.address, port.interface));
        Box::new(move || {
            let Some((own, interface)) = own else {
                return Err(io::Error::new(
                    io::ErrorKind::AddrNotAvailable,
                    "the device has no address of the group's family",
                ));
            };
            Ok(Box::new(open(group, own, interface, &options)?))
        })
    }

    /// Receives from a socket that has joined a group.
    pub(super) fn join(&mut self, group: IpAddr, socket: Socket) -> io::Result<()> {
        if self.members.values().any(|member| member.group == group) {
            return Ok(());
        }
        epoll::add(
            &self.epoll,
            &socket,
            epoll::EventData::new_u64(self.next),
            epoll::EventFlags::IN,
        )?;
        let overflow = Overflow::of(&socket);
        self.members.insert(self.next, Member { group, socket, overflow });
        self.next += 1;
        Ok(())
    }

    /// Receives no more for a group; what has arrived and is not taken is lost. Closing the socket
    /// leaves the group.
    pub(super) fn leave(&mut self, group: IpAddr) -> Option<Socket> {
        let key = *self.members.iter().find(|(_, member)| member.group == group)?.0;
        let member = self.members.remove(&key)?;
        self.drops_of_left += member.overflow.dropped;
        Some(member.socket)
    }

    /// Datagrams that their sockets have lost for want of room.
    pub(super) fn socket_drops(&self) -> u64 {
        let members = self.members.values().map(|member| member.overflow.dropped);
        self.drops_of_left + members.sum::<u64>()
    }

    /// Visits the groups that something has arrived for, some at a time.
    pub(super) fn each_ready(
        &mut self,
        mut visit: impl FnMut(&mut Member) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut events = [const { MaybeUninit::uninit() }; READY];
        let (events, _) = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default()))?;
        for event in &*events {
            if let Some(member) = self.members.get_mut(&event.data.u64()) {
                visit(member)?;
            }
        }
        Ok(())
    }
}

/// A socket that hears a group on the interface of the address `own`. To join tells the system, and
/// it the
/// network (IGMP, MLD), that this interface wants the group's packets.
fn open(group: IpAddr, own: IpAddr, interface: u32, options: &SocketOptions) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(SocketAddr::new(group, 0)),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    options.set_receive_buffer(&socket);
    // several programs on this host can be members
    message::named("SO_REUSEADDR", socket.set_reuse_address(true))?;
    message::configure(&socket, group.is_ipv6())?;
    match (group, own) {
        (IpAddr::V4(group), IpAddr::V4(own)) => {
            // IPv4 decides by memberships, if it is asked to
            message::named("IP_MULTICAST_ALL", socket.set_multicast_all_v4(false))?;
            socket.bind(&SocketAddr::from(SocketAddrV4::new(group, ROCE_UDP_PORT)).into())?;
            let interface = match interface {
                0 => InterfaceIndexOrAddress::Address(own),
                index => InterfaceIndexOrAddress::Index(index),
            };
            socket.join_multicast_v4_n(&group, &interface)?;
        }
        (IpAddr::V6(group), _) => {
            // IPv6 has the same option, but compares groups only, whatever interface they were
            // joined on
            message::named("IPV6_MULTICAST_ALL", socket.set_multicast_all_v6(false))?;
            message::bind_to_interface(&socket, interface)?;
            socket.bind(
                &SocketAddr::from(SocketAddrV6::new(group, ROCE_UDP_PORT, 0, interface)).into(),
            )?;
            socket.join_multicast_v6(&group, interface)?;
        }
        (IpAddr::V4(_), IpAddr::V6(_)) => return Err(io::ErrorKind::AddrNotAvailable.into()), // sorted out before
    }
    Ok(socket)
}
