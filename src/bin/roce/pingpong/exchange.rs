//! What two ping-pongs tell each other over TCP before they start, as the stock tools do it: the client writes its address, the
//! server answers with its own, the client says "done".

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use roce::{Endpoint, Gid, Psn, Qpn};

use crate::Failure;

/// `LID:QPN:PSN:GID` in hexadecimal and a zero byte.
const LENGTH: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;

/// An address, printed as the stock tools print it.
pub(super) struct Shown<'a>(pub(super) &'a Endpoint);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { gid, qpn, psn } = *self.0;
        write!(f, "LID 0x0000, QPN {:#08x}, PSN {:#08x}, GID {gid}", qpn.get(), psn.get())
    }
}

/// The peer, connected over TCP.
pub(super) struct Exchange {
    stream: TcpStream,
    is_client: bool,
}

impl Exchange {
    /// Connects to a server.
    pub(super) fn connect(server: &str, port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect((server, port)).map_err(|error| {
            format!(
                "cannot reach a ping-pong server at {server}, TCP port {port}: {error}; start one there first, without SERVER"
            )
        })?;
        Ok(Self { stream, is_client: true })
    }

    /// Listens for a client; one is taken by [`accept`](Self::accept).
    pub(super) fn listen(port: u16) -> Result<TcpListener, Failure> {
        let any = |ip: &str| TcpListener::bind(format!("{ip}:{port}"));
        // without IPv6 on this host the first fails
        any("[::]").or_else(|_| any("0.0.0.0")).map_err(|error| {
            format!("cannot listen on TCP port {port}: {error}; choose another with -p, the same on both sides").into()
        })
    }

    /// Waits for a client.
    pub(super) fn accept(listener: &TcpListener) -> Result<Self, Failure> {
        let (stream, _) = listener.accept()?;
        Ok(Self { stream, is_client: false })
    }

    /// This side's address of the TCP connection.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Tells our addresses, learns as many of the peer's, and calls `ready` with them when the peer may rely on this side being
    /// ready.
    pub(super) fn swap(
        mut self,
        ours: &[Endpoint],
        ready: impl FnOnce(&[Endpoint]) -> Result<(), Failure>,
    ) -> Result<Vec<Endpoint>, Failure> {
        if self.is_client {
            self.tell(ours)?;
            let theirs = self.learn(ours.len())?;
            ready(&theirs)?;
            self.stream.write_all(b"done\0")?;
            Ok(theirs)
        } else {
            let theirs = self.learn(ours.len())?;
            ready(&theirs)?;
            self.tell(ours)?;
            let mut done = [0; 5];
            self.stream.read_exact(&mut done).map_err(|_| "the client went away before it was ready")?;
            Ok(theirs)
        }
    }

    fn tell(&mut self, endpoints: &[Endpoint]) -> io::Result<()> {
        for endpoint in endpoints {
            let mut text = format!("0000:{:06x}:{:06x}:", endpoint.qpn.get(), endpoint.psn.get());
            text.extend(endpoint.gid.0.map(|byte| format!("{byte:02x}")));
            text.push('\0');
            // the peer reads it with one call
            self.stream.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    fn learn(&mut self, count: usize) -> Result<Vec<Endpoint>, Failure> {
        let mut bytes = [0; LENGTH];
        let mut endpoints = Vec::with_capacity(count);
        for _ in 0..count {
            self.stream
                .read_exact(&mut bytes)
                .map_err(|_| "the other side closed the connection before it told its address; see what it printed")?;
            let endpoint = parse(&bytes);
            endpoints.push(endpoint.ok_or("the other side is no ping-pong: it told no address of the form LID:QPN:PSN:GID")?);
        }
        Ok(endpoints)
    }
}

fn parse(bytes: &[u8; LENGTH]) -> Option<Endpoint> {
    let text = str::from_utf8(&bytes[..LENGTH - 1]).ok()?;
    let mut fields = text.split(':');
    let mut hex = |digits: usize| fields.next().filter(|field| field.len() == digits);
    let (_lid, qpn, psn, gid) = (hex(4)?, hex(6)?, hex(6)?, hex(32)?);
    Some(Endpoint {
        gid: Gid(u128::from_str_radix(gid, 16).ok()?.to_be_bytes()),
        qpn: Qpn::new(u32::from_str_radix(qpn, 16).ok()?),
        psn: Psn::new(u32::from_str_radix(psn, 16).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_stock_tools_write() {
        let text = b"0000:000011:1d5ef4:00000000000000000000ffff0a4d0002\0";
        let endpoint = parse(text).unwrap();
        assert_eq!((endpoint.qpn, endpoint.psn), (Qpn::new(0x11), Psn::new(0x1d_5ef4)));
        assert_eq!(endpoint.gid.to_ip().to_string(), "10.77.0.2");
        assert!(parse(b"0000:000011:1d5ef4:00000000000000000000ffff0a4d000g\0").is_none());
    }
}
