//! Lines from an untrusted client, bounded in length and time.

use std::{
    io::{self, Read},
    mem,
    net::TcpStream,
    time::{Duration, Instant},
};

use rustix::net::{RecvFlags, recv};

pub(super) struct Lines {
    pub(super) stream: TcpStream,
    pending: Vec<u8>,
}

impl Lines {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// The next line of up to `most` bytes within `time`.
    pub(super) fn next(&mut self, most: usize, time: Duration) -> io::Result<Option<String>> {
        let end = Instant::now() + time;
        let mut seen = 0;
        loop {
            let found = self.pending[seen..].iter().position(|&byte| byte == b'\n');
            if let Some(at) = found.map(|at| seen + at) {
                let rest = self.pending.split_off(at + 1);
                let mut line = mem::replace(&mut self.pending, rest);
                line.pop();
                return Ok(String::from_utf8(line).ok().filter(|line| line.len() <= most));
            }
            seen = self.pending.len();
            let left = end.saturating_duration_since(Instant::now());
            if seen > most || left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut part = [0; 16 << 10];
            let length = self.stream.read(&mut part)?;
            if length == 0 {
                return Ok(None);
            }
            self.pending.extend_from_slice(&part[..length]);
        }
    }
}

pub(super) fn is_gone(stream: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut [0_u8; 1][..], flags) {
        Ok((_, length)) => length == 0,
        Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}
