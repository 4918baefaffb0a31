//! Minimal HTTP: GET and HEAD, one request per connection.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use super::pages::Pages;
use crate::failure::Failure;

/// Browsers open connections without using them.
const MOST: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: u64 = 16 << 10;

/// The page may load only its own files.
const POLICY: &str = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; \
                      style-src 'self' 'unsafe-inline'; img-src 'self' data:";

pub(super) fn serve(listener: &TcpListener, pages: Pages) -> Result<(), Failure> {
    let pages = Arc::new(pages);
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // peer gone, or out of descriptors
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        // each connection has a reference
        if Arc::strong_count(&pages) > MOST {
            continue;
        }
        let pages = pages.clone();
        thread::Builder::new().spawn(move || {
            // A browser may disconnect.
            let _ = respond(stream, &pages);
        })?;
    }
}

fn respond(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new((&stream).take(LONGEST));
    let mut request = String::new();
    reader.read_line(&mut request)?;
    // Headers are read: closing with unread data resets the connection.
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut words = request.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, kind, body) = match (method, pages.find(path)) {
        ("GET" | "HEAD", Some((kind, body))) => ("200 OK", kind, body),
        ("GET" | "HEAD", None) => ("404 Not Found", "text/plain", &b"no such file\n"[..]),
        _ => ("405 Method Not Allowed", "text/plain", &b"only GET and HEAD\n"[..]),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: {POLICY}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" {
        stream.write_all(body)?;
    }
    Ok(())
}
