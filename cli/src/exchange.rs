//! TCP exchange of addresses as in the stock ping-pongs: the client writes, the server responds,
//! the client says "done".

use std::{
    fmt,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd},
};

use roce::{
    AddressVector, Context, Endpoint, Gid, Mtu, PeerAttr, Psn, Qpn, QueuePair, RequesterAttr,
    ResponderAttr, Rtr, Rts, SrqId, devices,
};

use crate::failure::{Failure, fail};

/// Digits of `LID:QPN:PSN:GID` in hexadecimal, before a zero byte.
const DIGITS: [usize; 4] = [4, 6, 6, 32];

/// `LID:target QPN:initiator QPN:PSN:SRQN:GID` likewise.
const XRC_DIGITS: [usize; 6] = [4, 6, 6, 6, 6, 32];

/// Limit of [`Exchange::learn_text`].
const MAX_TEXT: usize = 1 << 16;

const END: &[u8; 4] = b"END\0";

pub(crate) fn shown(&Endpoint { gid, qpn, psn }: &Endpoint) -> String {
    format!("LID 0x0000, QPN {:#08x}, PSN {:#08x}, GID {gid}", qpn.get(), psn.get())
}

/// GID of the connection's local address, or of its family.
pub(crate) fn gid_index(context: &Context, local: IpAddr) -> u16 {
    let gids = context.gids();
    let same = gids.iter().position(|gid| gid.to_ip() == local);
    let alike = gids.iter().position(|gid| gid.to_ip().is_ipv4() == local.is_ipv4());
    same.or(alike).unwrap_or(0) as u16
}

/// To RTS, with the stock tools' attributes.
pub(crate) fn connect(
    qp: &QueuePair,
    path_mtu: Mtu,
    rd_atomic: u8,
    gid_index: u16,
    sq_psn: Psn,
    theirs: &Endpoint,
) -> Result<(), Failure> {
    let qp_type = qp.query().qp_type;
    let av = AddressVector::new(theirs.gid, gid_index);
    let peer = PeerAttr { dest_qpn: theirs.qpn, path_mtu, rq_psn: theirs.psn, av };
    let responder = ResponderAttr { max_dest_rd_atomic: rd_atomic, min_rnr_timer: 12 };
    let requester =
        RequesterAttr { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: rd_atomic };
    qp.to_rtr(Rtr::new(qp_type, peer, responder))?;
    Ok(qp.to_rts(Rts::new(qp_type, sq_psn, requester))?)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct XrcEndpoint {
    /// Its PSN is the first of both queue pairs.
    pub(crate) target: Endpoint,
    pub(crate) initiator: Qpn,
    pub(crate) srq: SrqId,
}

impl XrcEndpoint {
    fn wire(&self) -> String {
        let Self { target: Endpoint { gid, qpn, psn }, initiator, srq } = *self;
        let (qpn, initiator, psn, srq) = (qpn.get(), initiator.get(), psn.get(), srq.get());
        let gid = u128::from_be_bytes(gid.0);
        format!("0000:{qpn:06x}:{initiator:06x}:{psn:06x}:{srq:06x}:{gid:032x}\0")
    }
}

impl fmt::Display for XrcEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target: Endpoint { gid, qpn, psn }, initiator, srq } = *self;
        let (qpn, initiator, psn, srq) = (qpn.get(), initiator.get(), psn.get(), srq.get());
        write!(
            f,
            "LID 0000, QPN RECV {qpn:06x} SEND {initiator:06x}, PSN {psn:06x}, SRQN {srq:06x}, GID \
             {gid}"
        )
    }
}

pub(crate) struct Exchange {
    stream: TcpStream,
    pub(crate) is_client: bool,
}

impl Exchange {
    pub(crate) fn connect(tool: &str, server: &str, port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect((server, port)).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NetworkUnreachable => {
                    "see `ip route`; an address of this host needs the interface lo, which `ip link \
                     set lo up` starts"
                }
                _ => "start one there first, without SERVER",
            };
            format!("cannot reach a {tool} server at {server}, TCP port {port}: {error}; {advice}")
        })?;
        Ok(Self { stream, is_client: true })
    }

    pub(crate) fn pair() -> Result<(Self, Self), Failure> {
        // Connecting over an interface that is down blocks for minutes.
        if devices().first().is_some_and(|lo| !lo.port().active) {
            fail!(
                "--local needs 127.0.0.1, and the interface lo is down; `ip link set lo up` starts \
                 it"
            );
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        Ok((Self { stream, is_client: true }, Self::accept(&listener)?))
    }

    pub(crate) fn listen(port: u16) -> Result<TcpListener, Failure> {
        let any = |ip: &str| TcpListener::bind(format!("{ip}:{port}"));
        // without IPv6
        any("[::]").or_else(|_| any("0.0.0.0")).map_err(|error| {
            format!(
                "cannot listen on TCP port {port}: {error}; choose another with -p, the same \
                 on both sides"
            )
            .into()
        })
    }

    pub(crate) fn accept(listener: &TcpListener) -> Result<Self, Failure> {
        let (stream, _) = listener.accept()?;
        Ok(Self { stream, is_client: false })
    }

    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Calls `ready` before the peer may rely on this side.
    pub(crate) fn swap(
        &mut self,
        ours: &[Endpoint],
        ready: impl FnOnce(&[Endpoint]) -> Result<(), Failure>,
    ) -> Result<Vec<Endpoint>, Failure> {
        let text: String = ours.iter().map(wire).collect();
        let theirs = self.in_turn(text.as_bytes(), |it| {
            let mut theirs = Vec::with_capacity(ours.len());
            for _ in ours {
                theirs.push(endpoint(it.learn(DIGITS)?.ok_or(
                    "the peer sent no address of the form LID:QPN:PSN:GID; start the same tool on \
                     both sides",
                )?));
            }
            ready(&theirs)?;
            Ok(theirs)
        })?;
        if self.is_client {
            self.stream.write_all(b"done\0")?;
        } else {
            let done = self.stream.read_exact(&mut [0; 5]);
            done.map_err(|_| "the client closed the connection before it was ready")?;
        }
        Ok(theirs)
    }

    /// The client speaks first.
    fn in_turn<T>(
        &mut self,
        ours: &[u8],
        theirs: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.is_client {
            self.stream.write_all(ours)?;
        }
        let theirs = theirs(self)?;
        if !self.is_client {
            self.stream.write_all(ours)?;
        }
        Ok(theirs)
    }

    pub(crate) fn send_text(&mut self, text: &str) -> Result<(), Failure> {
        let sent = self.stream.write_all(format!("{text}\0").as_bytes());
        Ok(sent.map_err(|error| format!("the connection to the peer is lost: {error}"))?)
    }

    pub(crate) fn learn_text(&mut self) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).map_err(|_| ENDED)?;
            if byte == [0] {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            bytes.extend(byte);
            if bytes.len() > MAX_TEXT {
                fail!("the peer sent unknown text; start the same program on both sides");
            }
        }
    }

    /// Readable when the peer has sent or gone.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(crate) fn swap_xrc(
        &mut self,
        ours: &XrcEndpoint,
        ready: impl FnOnce(&XrcEndpoint) -> Result<(), Failure>,
    ) -> Result<XrcEndpoint, Failure> {
        self.in_turn(ours.wire().as_bytes(), |it| {
            let theirs = xrc_endpoint(it.learn(XRC_DIGITS)?.ok_or(
                "the peer is no XRC ping-pong: it sent no address of the form \
                 LID:QPN:QPN:PSN:SRQN:GID",
            )?);
            ready(&theirs)?;
            Ok(theirs)
        })
    }

    /// The peer has received everything, too.
    pub(crate) fn end_xrc(&mut self) -> Result<(), Failure> {
        self.in_turn(END, |it| {
            let mut bytes = [0; END.len()];
            let read = it.stream.read_exact(&mut bytes);
            read.map_err(|_| "the peer closed the connection before the end")?;
            if bytes != *END {
                fail!("the peer did not end the ping-pong; see its output");
            }
            Ok(())
        })
    }

    /// Numbers with colons between them. `None`: something else.
    fn learn<const N: usize>(&mut self, digits: [usize; N]) -> Result<Option<[u128; N]>, Failure> {
        let mut bytes = vec![0; digits.iter().sum::<usize>() + N];
        self.stream.read_exact(&mut bytes).map_err(|_| GONE)?;
        Ok(fields(&bytes, digits))
    }
}

const GONE: &str = "the peer closed the connection before it sent its address; see its output";
const ENDED: &str = "the peer ended early; see its output";

fn wire(&Endpoint { gid, qpn, psn }: &Endpoint) -> String {
    let gid = u128::from_be_bytes(gid.0);
    format!("0000:{:06x}:{:06x}:{gid:032x}\0", qpn.get(), psn.get())
}

fn endpoint([_lid, qpn, psn, gid]: [u128; 4]) -> Endpoint {
    let (qpn, psn) = (Qpn::new(qpn as u32), Psn::new(psn as u32));
    Endpoint { gid: Gid(gid.to_be_bytes()), qpn, psn }
}

fn xrc_endpoint([lid, target, initiator, psn, srq, gid]: [u128; 6]) -> XrcEndpoint {
    XrcEndpoint {
        target: endpoint([lid, target, psn, gid]),
        initiator: Qpn::new(initiator as u32),
        srq: SrqId::new(srq as u32),
    }
}

fn fields<const N: usize>(bytes: &[u8], digits: [usize; N]) -> Option<[u128; N]> {
    let (_, text) = bytes.split_last()?;
    let mut fields = str::from_utf8(text).ok()?.split(':');
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        *number =
            u128::from_str_radix(fields.next().filter(|field| field.len() == digits)?, 16).ok()?;
    }
    fields.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_stock_tools_write() {
        let text = b"0000:000011:1d5ef4:00000000000000000000ffff0a4d0002\0";
        let endpoint = fields(text, DIGITS).map(endpoint).unwrap();
        assert_eq!((endpoint.qpn, endpoint.psn), (Qpn::new(0x11), Psn::new(0x1d_5ef4)));
        assert_eq!(endpoint.gid.to_ip().to_string(), "10.77.0.2");
        let other = b"0000:000011:1d5ef4:00000000000000000000ffff0a4d000g\0";
        assert!(fields(other, DIGITS).is_none());
    }

    fn parse_xrc(text: &[u8]) -> Option<XrcEndpoint> {
        fields(text, XRC_DIGITS).map(xrc_endpoint)
    }

    #[test]
    fn reads_what_the_stock_xrc_tool_writes() {
        let text = b"0000:000012:000013:1d5ef4:000007:00000000000000000000ffff0a4d0002\0";
        let endpoint = parse_xrc(text).unwrap();
        assert_eq!((endpoint.target.qpn, endpoint.initiator), (Qpn::new(0x12), Qpn::new(0x13)));
        assert_eq!((endpoint.target.psn, endpoint.srq), (Psn::new(0x1d_5ef4), SrqId::new(7)));
        assert_eq!(endpoint.target.gid.to_ip().to_string(), "10.77.0.2");
        assert_eq!(endpoint.wire().as_bytes(), text);
        let shifted = b"0000:00012:0000013:1d5ef4:000007:00000000000000000000ffff0a4d0002\0";
        assert!(parse_xrc(shifted).is_none());
    }

    /// ibv_xsrq_pingpong: the client speaks first, at start and end.
    #[test]
    fn speaks_in_turn_with_a_stock_xrc_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stock = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let text = b"0000:000012:000013:1d5ef4:000007:00000000000000000000ffff0a4d0002\0";
        let theirs = parse_xrc(text).unwrap();
        let ours = XrcEndpoint { srq: SrqId::new(8), ..theirs };
        stock.write_all(text).unwrap();
        let mut exchange = Exchange::accept(&listener).unwrap();
        assert_eq!(exchange.swap_xrc(&ours, |_| Ok(())).unwrap(), theirs);
        let mut response = vec![0; text.len()];
        stock.read_exact(&mut response).unwrap();
        assert_eq!(parse_xrc(&response), Some(ours));
        stock.write_all(b"END\0").unwrap();
        exchange.end_xrc().unwrap();
        let mut end = [0; 4];
        stock.read_exact(&mut end).unwrap();
        assert_eq!(end, *END);
    }
}
