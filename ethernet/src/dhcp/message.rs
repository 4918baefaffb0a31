use std::net::{IpAddr, Ipv4Addr};

use pnet_datalink::MacAddr;
use smoltcp::wire::{DhcpMessageType, DhcpPacket, DhcpRepr, Error as Malformed, EthernetAddress};

use super::super::{address::Prefix, frame::chunk};

// RFC 2132 and RFC 3442
const MASK: u8 = 1;
const ROUTER: u8 = 3;
const LEASE_TIME: u8 = 51;
const MESSAGE_TYPE: u8 = 53;
const SERVER: u8 = 54;
const T1: u8 = 58;
const T2: u8 = 59;
const CLASSLESS_ROUTES: u8 = 121;
/// Offset of the options.
const OPTIONS: usize = 240;
const PAD: u8 = 0;
const END: u8 = 255;

const WANTED: [u8; 6] = [MASK, CLASSLESS_ROUTES, ROUTER, LEASE_TIME, T1, T2];
/// Routes kept of a lease.
const ROUTES: usize = 32;

/// A leased route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destination network.
    pub to: Prefix,
    /// `None`: on-link.
    pub gateway: Option<Ipv4Addr>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub(super) address: Ipv4Addr,
    pub(super) prefix_length: u8,
    pub(super) server: Ipv4Addr,
    pub(super) routes: Vec<Route>,
    /// Lease, renewal (T1) and rebinding (T2).
    pub(super) seconds: [u32; 3],
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Response {
    Offer(Grant),
    Ack(Grant),
    Nak { server: Ipv4Addr },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reply {
    pub(super) xid: u32,
    pub(super) mac: MacAddr,
    /// `Err`: a malformed message or an unusable grant.
    pub(super) response: Result<Response, Malformed>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Reply, Malformed> {
    let packet = DhcpPacket::new_checked(bytes)?;
    let repr = DhcpRepr::parse(&packet)?;
    let response = match options_are_whole(&bytes[OPTIONS..]) {
        true => response(&packet, repr.message_type),
        false => Err(Malformed),
    };
    let mac = MacAddr::from(repr.client_hardware_address.0);
    Ok(Reply { xid: repr.transaction_id, mac, response })
}

/// smoltcp takes a truncated option for the end.
fn options_are_whole(mut options: &[u8]) -> bool {
    loop {
        match options {
            [] | [END, ..] => return true,
            [PAD, rest @ ..] => options = rest,
            [_, length, rest @ ..] if rest.len() >= usize::from(*length) => {
                options = &rest[usize::from(*length)..];
            }
            _ => return false,
        }
    }
}

fn response(packet: &DhcpPacket<&[u8]>, kind: DhcpMessageType) -> Result<Response, Malformed> {
    let (mut mask, mut router, mut server, mut classless) = (None, None, None, None);
    let mut seconds = [None; 3];
    for option in packet.options() {
        let four = || <[u8; 4]>::try_from(option.data).map_err(|_| Malformed);
        match option.kind {
            MESSAGE_TYPE if option.data.len() != 1 => return Err(Malformed),
            MASK => mask = Some(u32::from_be_bytes(four()?)),
            SERVER => server = Some(Ipv4Addr::from(four()?)),
            LEASE_TIME => seconds[0] = Some(u32::from_be_bytes(four()?)),
            T1 => seconds[1] = Some(u32::from_be_bytes(four()?)),
            T2 => seconds[2] = Some(u32::from_be_bytes(four()?)),
            ROUTER => {
                let (first, rest) = option.data.split_first_chunk::<4>().ok_or(Malformed)?;
                if rest.len() % 4 != 0 {
                    return Err(Malformed);
                }
                router = Some(Ipv4Addr::from(*first)); // the most preferred
            }
            // RFC 3396: a long option is split.
            CLASSLESS_ROUTES => {
                classless.get_or_insert_with(Vec::new).extend_from_slice(option.data);
            }
            _ => {}
        }
    }
    let server = server.filter(|server| is_host(*server)).ok_or(Malformed)?;
    let grant = || {
        let address = packet.your_ip();
        let prefix_length = match mask {
            Some(mask) if mask.leading_ones() + mask.trailing_zeros() == 32 => mask.leading_ones(),
            Some(_) => return Err(Malformed),
            None => natural_length(address),
        } as u8;
        // RFC 3442: this option overrides the router option.
        let routes = match classless {
            Some(bytes) => routes(&bytes)?,
            None => {
                let to = Prefix { address: Ipv4Addr::UNSPECIFIED.into(), length: 0 };
                let gateway = router.filter(|router| is_host(*router) && *router != address);
                gateway.map(|gateway| Route { to, gateway: Some(gateway) }).into_iter().collect()
            }
        };
        if !is_host_of(address, prefix_length) {
            return Err(Malformed);
        }
        let seconds = times(seconds).ok_or(Malformed)?;
        Ok(Grant { address, prefix_length, server, routes, seconds })
    };
    match kind {
        DhcpMessageType::Offer => grant().map(Response::Offer),
        DhcpMessageType::Ack => grant().map(Response::Ack),
        DhcpMessageType::Nak => Ok(Response::Nak { server }),
        _ => Err(Malformed),
    }
}

/// Least lease in seconds: a shorter lease would mean nothing but requests.
pub(super) const LEAST: u32 = 10;

/// Invalid or missing T1 and T2 become half and seven eighths of the lease (RFC 2131, section
/// 4.4.5).
fn times([lease, t1, t2]: [Option<u32>; 3]) -> Option<[u32; 3]> {
    let lease = lease.filter(|lease| *lease >= LEAST)?;
    let given = t1.zip(t2).filter(|&(t1, t2)| LEAST / 2 <= t1 && t1 < t2 && t2 < lease);
    let (t1, t2) = given.unwrap_or((lease / 2, (u64::from(lease) * 7 / 8) as u32));
    Some([lease, t1, t2])
}

/// A route is a prefix with only its significant bytes, then the router.
fn routes(mut bytes: &[u8]) -> Result<Vec<Route>, Malformed> {
    let mut routes = Vec::new();
    while let Some((&length, rest)) = bytes.split_first() {
        let octets = usize::from(length.div_ceil(8));
        if length > 32 || rest.len() < octets + 4 {
            return Err(Malformed);
        }
        let mut network = [0; 4];
        network[..octets].copy_from_slice(&rest[..octets]);
        let gateway = chunk::<4>(rest, octets).map(Ipv4Addr::from).ok_or(Malformed)?;
        bytes = &rest[octets + 4..];
        let gateway = match gateway.is_unspecified() {
            true => None,
            false if is_host(gateway) => Some(gateway),
            false => return Err(Malformed),
        };
        if routes.len() < ROUTES {
            let to = Prefix { address: IpAddr::from(network), length };
            routes.push(Route { to, gateway });
        }
    }
    Ok(routes)
}

fn is_host(address: Ipv4Addr) -> bool {
    // 0.0.0.0/8, 127.0.0.0/8, multicast, reserved
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

/// True for neither the first nor the broadcast address, except in a network of two (RFC 3021).
fn is_host_of(address: Ipv4Addr, length: u8) -> bool {
    let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
    let host = address.to_bits() & hosts;
    is_host(address) && length > 0 && (length >= 31 || host != 0 && host != hosts)
}

/// Classful length (RFC 791).
fn natural_length(address: Ipv4Addr) -> u32 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        192.. => 24,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) kind: DhcpMessageType,
    pub(super) xid: u32,
    pub(super) secs: u16,
    pub(super) mac: MacAddr,
    pub(super) client: Ipv4Addr,
    pub(super) requested: Option<Ipv4Addr>,
    pub(super) server: Option<Ipv4Addr>,
}

impl Request {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let asks = matches!(self.kind, DhcpMessageType::Discover | DhcpMessageType::Request);
        let none = Ipv4Addr::UNSPECIFIED;
        let mac = EthernetAddress(self.mac.octets());
        let repr = DhcpRepr {
            message_type: self.kind,
            transaction_id: self.xid,
            secs: self.secs,
            client_hardware_address: mac,
            client_ip: self.client,
            your_ip: none,
            server_ip: none,
            router: None,
            subnet_mask: None,
            relay_agent_ip: none,
            // Unicast reaches its MAC address before it has an IP address.
            broadcast: false,
            requested_ip: self.requested,
            client_identifier: Some(mac),
            server_identifier: self.server,
            parameter_request_list: asks.then_some(&WANTED),
            dns_servers: None,
            max_size: None,
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        };
        // BOOTP servers and relays require 300 bytes (RFC 1542, section 2.1).
        let mut bytes = vec![0; repr.buffer_len().max(300)];
        let emitted = repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..]));
        debug_assert_eq!(emitted, Ok(()), "it has as much room as it needs");
        bytes
    }
}
