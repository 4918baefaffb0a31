//! Explanations of errors and events.

use std::io;

use roce_transport::{
    explain::{Explain, Reason, SidrStatus},
    reasons,
};

use super::{
    error::CmError,
    kind::{EventKind, Status},
};
use crate::errnos;

reasons! {
    CmError {
        Self::State(_) => EINVAL "id_state"
            "call bind or resolve_addr, resolve_route, connect; or bind, listen, accept. Take the \
             event of each call before the next (ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT_REQUEST)";
        Self::NoDevice => EINVAL "no_device"
            "first call rdma_resolve_addr and take its event, or rdma_bind_addr to one address; \
             id->verbs is null until then";
        Self::NoQueuePair => EINVAL "no_queue_pair"
            "call rdma_create_qp before rdma_connect or rdma_accept, or set qp_num in \
             rdma_conn_param";
        Self::HasQueuePair => EINVAL "has_queue_pair" "call rdma_destroy_qp before you create \
                                                       another one";
        Self::WrongService(_) => EINVAL "wrong_service"
            "use RDMA_PS_TCP with IBV_QPT_RC, RDMA_PS_UDP with IBV_QPT_UD";
        Self::PortInUse(_) => EADDRINUSE "port_in_use"
            "another id, of this or another process, has the port: choose another port, or 0; \
             RDMA_OPTION_ID_REUSEADDR shares a port on which no id listens";
        Self::PortOverlap(_) => EADDRNOTAVAIL "port_in_use"
            "one of the two ids is bound to all addresses: bind both to one address each";
        Self::PortPrivileged(_) => EACCES "port_privileged"
            "choose a port from net.ipv4.ip_unprivileged_port_start (1024) up, or grant the \
             capability (setcap cap_net_bind_service+ep)";
        Self::NoPort => EADDRNOTAVAIL "no_port" "destroy unused ids";
        Self::Family(_) => EAFNOSUPPORT "address_family"
            "bind and connect with IPv4 addresses, or both with IPv6 ones";
        Self::Address(_) => EINVAL "address"
            "give an address of one host, with its port; 0.0.0.0 is for listening";
        Self::NotOfDevice(_) => EADDRNOTAVAIL "not_of_device"
            "`roce devinfo -v` lists the addresses of each device";
        Self::NoListenDevice(_) => ENODEV "no_listen_device"
            "`roce devinfo` lists the devices; ROCE_DEVICES may leave some out";
        Self::PrivateData(_) => EINVAL "private_data"
            "limit private_data_len to 56 bytes for rdma_connect, 196 for rdma_accept, 148 for \
             rdma_reject; less for datagrams";
        Self::Range(_) => EINVAL "attribute_range"
            "ibv_query_device: max_qp_rd_atom for responder_resources, max_qp_init_rd_atom for \
             initiator_depth; retry counts have three bits";
        Self::NotJoined(_) => EADDRNOTAVAIL "not_joined"
            "call rdma_leave_multicast once for each joined group";
        Self::Joined(_) => EADDRINUSE "joined" "join a group once per id";
    }
    of {
        Self::Open(error) => error;
        Self::Protocol(error) => error;
        Self::Object(error) => error;
        Self::Modify(error) => error;
        Self::Region(error) => error;
        Self::Post(error) => &error.error;
        Self::Failed { status, .. } => status;
        Self::Io(error) => &Refused(error);
    }
}

struct Refused<'a>(&'a io::Error);

impl Explain for Refused<'_> {
    fn explain(&self) -> Reason {
        let advice = match self.0.kind() {
            io::ErrorKind::TimedOut => "the peer or its host did not respond in this time",
            _ => {
                "check that the name resolves (`getent hosts NAME`) and that descriptors are left \
                 (`ulimit -n`)"
            }
        };
        let errno = self.0.raw_os_error().map(errnos::name);
        Reason { errno, ..Reason::new("system", self.0, advice) }
    }
}

impl Explain for Status {
    fn explain(&self) -> Reason {
        let advice = match *self {
            Self::Rejected(reason) => return reason.explain(),
            Self::Sidr(status) => return SidrStatus(status).explain(),
            Self::Success => "nothing",
            Self::User(_) => "the program wrote this event itself (rdma_write_cm_event)",
            Self::Errno(libc::ETIMEDOUT) => {
                "no host responds at the address: check that its program runs, the address is \
                 right, and firewalls pass UDP port 4791"
            }
            Self::Errno(libc::EADDRNOTAVAIL) => {
                "this host does not have the address, or lost it: `ip address`"
            }
            Self::Errno(libc::ENODEV) => {
                "no device leads to the address: `roce devinfo -v` lists devices and addresses, \
                 `ip route get ADDRESS` the interface"
            }
            Self::Errno(libc::EADDRINUSE) => {
                "another program uses the device's address: `ss -ulnp sport = :4791`"
            }
            Self::Errno(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
                "the host has no route to the address: `ip route get ADDRESS`"
            }
            Self::Errno(libc::EINVAL) => {
                "the queue pair cannot change its state: the program changed it, or its \
                 attributes conflict with the peer's"
            }
            Self::Errno(libc::ENOMEM) => "ibv_query_device: max_mcast_grp, max_mcast_qp_attach",
            Self::Errno(_) => "the system refuses an operation; its error says why",
        };
        let reason = Reason::new("connection_failed", self, advice);
        match *self {
            Self::Errno(errno) => reason.with_errno(errnos::name(errno)),
            _ => reason,
        }
    }
}

impl Explain for EventKind {
    fn explain(&self) -> Reason {
        let advice = match self {
            Self::AddrResolved => "call rdma_resolve_route",
            Self::AddrError => {
                "no device leads to the address: `roce devinfo -v`, `ip route get ADDRESS`"
            }
            Self::RouteResolved => "make the queue pair, and call rdma_connect",
            Self::RouteError | Self::AddrChange => {
                "the interface has lost the id's address: destroy the id, and resolve again"
            }
            Self::ConnectRequest => "call rdma_accept or rdma_reject soon: the peer waits",
            Self::ConnectResponse => "move the queue pair to RTS, and call rdma_establish",
            Self::ConnectError => "the local queue pair cannot change its state",
            Self::Unreachable => "the peer does not respond, or does not offer this service",
            Self::Rejected => "the peer refuses: status and private_data say why",
            Self::Established => "send and receive",
            Self::Disconnected => "the peer closed the connection; the queue pair is in ERR",
            Self::DeviceRemoval => "the device is lost: destroy all ids and objects on it",
            Self::MulticastJoin => "make an address handle from param.ud, and send",
            Self::MulticastError => "the interface must be up and carry multicast: `ip link`",
            Self::TimewaitExit => "the queue pair may be used for another connection",
            Self::AddrinfoResolved => "call rdma_query_addrinfo for the result",
            Self::AddrinfoError => "the name does not resolve: `getent hosts NAME`",
            Self::User => "the program wrote this event itself (rdma_write_cm_event)",
        };
        Reason::new("connection_event", self, advice)
    }
}
