//! Control socket (`ROCE_CONTROL`) for processes that may read this process's memory.
//!
//! A command is a line of text. The last response line is `ok` or begins with `error: `.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::FileTypeExt,
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process,
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};

use crate::{link::check_trust, publish::runtime_directory, signals, variables};

/// Bytes of a command.
const LONGEST: u64 = 64 << 10;
/// Limit between commands, and for a response.
const TIMEOUT: Duration = Duration::from_secs(10);
const CLIENTS: usize = 8;
const PREFIX: &str = "control-";

/// Handler of a command.
pub type Handler = fn(&str) -> Result<Vec<String>, String>;

/// True if the environment requests a socket.
#[must_use]
pub fn is_wanted() -> bool {
    wanted().is_some()
}

fn wanted() -> Option<String> {
    let value = variables::value(variables::CONTROL)?.into_string().ok()?;
    (value != "0").then_some(value)
}

fn socket_path() -> io::Result<PathBuf> {
    match wanted().as_deref() {
        None | Some("1") => of_process(process::id()),
        Some(path) => Ok(path.replace("%p", &process::id().to_string()).into()),
    }
}

/// Socket path for `roce fault --pid`.
///
/// # Errors
/// If there is no runtime directory.
pub fn of_process(number: u32) -> io::Result<PathBuf> {
    Ok(runtime_directory()?.join(format!("{PREFIX}{number}")))
}

/// Takes commands on a new thread.
///
/// # Errors
/// If the socket cannot be made; [`io::ErrorKind::AddrInUse`] if another process listens.
pub fn start(handler: Handler) -> io::Result<Listening> {
    let path = socket_path()?;
    let listener = listen_at(&path)?;
    if let Some(directory) = path.parent().filter(|_| wanted().as_deref() == Some("1")) {
        remove_ended(directory);
    }
    signals::blocked(|| {
        thread::Builder::new().name("roce control".into()).spawn(move || serve(&listener, handler))
    })?;
    Ok(Listening { path, process: process::id() })
}

/// Listening control socket, removed on drop.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    process: u32,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // not in a forked child
        if self.process == process::id() && is_socket(&self.path).is_ok_and(|is| is) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Access for this user only, from the start.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // the name inherits the socket's mode
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    let address = SocketAddrUnix::new(path)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            match remove_left(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            bind(&socket, &address)?;
        }
        bound => bound?,
    }
    listen(&socket, 8)?;
    Ok(socket.into())
}

fn is_socket(path: &Path) -> io::Result<bool> {
    fs::symlink_metadata(path).map(|metadata| metadata.file_type().is_socket())
}

/// Removes a dead process's socket only.
fn remove_left(path: &Path) -> io::Result<()> {
    if !is_socket(path)? {
        let problem = format!("{} exists and is not a socket; choose another name", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

fn remove_ended(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = remove_left(&entry.path());
        }
    }
}

fn serve(listener: &UnixListener, handler: Handler) {
    let clients = Arc::new(());
    for client in listener.incoming() {
        let Ok(client) = client else {
            thread::sleep(Duration::from_millis(10)); // EMFILE
            continue;
        };
        let client = OwnedFd::from(client);
        if check_trust(&client).is_err() || Arc::strong_count(&clients) > CLIENTS {
            continue;
        }
        let counted = clients.clone();
        // inherits the blocked signals
        let _ = thread::Builder::new().name("roce control".into()).spawn(move || {
            let _ = serve_client(&client.into(), handler);
            drop(counted);
        });
    }
}

/// Until the client leaves or times out.
fn serve_client(client: &UnixStream, handler: Handler) -> io::Result<()> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(client);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') && line.len() as u64 >= LONGEST {
            return (&*client).write_all(b"error: the line is too long\n");
        }
        let text = match handler(line.trim()) {
            Ok(mut lines) => {
                lines.push("ok".into());
                lines.join("\n")
            }
            Err(problem) => format!("error: {}", problem.replace('\n', " ")),
        };
        (&*client).write_all(format!("{text}\n").as_bytes())?;
    }
}

/// Sends a command; returns response lines or an error.
///
/// # Errors
/// If no process listens or responds.
pub fn ask(path: &Path, command: &str) -> io::Result<Result<Vec<String>, String>> {
    let socket = UnixStream::connect_addr(&SocketAddr::from_pathname(path)?)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    (&socket).write_all(format!("{}\n", command.replace('\n', " ")).as_bytes())?;
    let mut lines = Vec::new();
    for line in BufReader::new(&socket).lines() {
        let line = line?;
        if line == "ok" {
            return Ok(Ok(lines));
        }
        if let Some(problem) = line.strip_prefix("error: ") {
            return Ok(Err(problem.to_owned()));
        }
        lines.push(line);
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// This user's processes with control sockets.
#[must_use]
pub fn processes() -> Vec<u32> {
    let Ok(directory) = runtime_directory() else { return Vec::new() };
    remove_ended(&directory);
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<u32> =
        names.filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use std::{env, os::unix::fs::PermissionsExt};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("roce-control-{name}-{}", process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    fn echo(line: &str) -> Result<Vec<String>, String> {
        match line {
            "wrong" => Err("no\nsuch".into()),
            line => Ok(vec![line.to_owned(), "second".to_owned()]),
        }
    }

    fn listening(path: &Path) -> UnixListener {
        let listener = listen_at(path).unwrap();
        let accepting = listener.try_clone().unwrap();
        thread::spawn(move || serve(&accepting, echo));
        listener
    }

    #[test]
    fn commands_get_responses_line_by_line() {
        let path = scratch("commands");
        let _listener = listening(&path);
        let lines = vec!["a b".to_owned(), "second".to_owned()];
        assert_eq!(ask(&path, "a b").unwrap(), Ok(lines));
        assert_eq!(ask(&path, "wrong").unwrap(), Err("no such".to_owned()));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        assert_eq!(listen_at(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let socket = UnixStream::connect(&path).unwrap();
        (&socket).write_all(b"one\ntwo\n").unwrap();
        let lines: Vec<_> =
            BufReader::new(&socket).lines().take(6).collect::<Result<_, _>>().unwrap();
        assert_eq!(lines, ["one", "second", "ok", "two", "second", "ok"]);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let path = scratch("long");
        let _listener = listening(&path);
        let socket = UnixStream::connect(&path).unwrap();
        let _ = (&socket).write_all(&[b'x'; LONGEST as usize]);
        let mut response = String::new();
        BufReader::new(&socket).read_line(&mut response).unwrap();
        assert_eq!(response, "error: the line is too long\n");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_not_removed() {
        let directory = scratch("files");
        fs::create_dir(&directory).unwrap();
        let [file, link, socket] =
            ["control-1", "control-2", "left"].map(|name| directory.join(name));
        fs::write(&file, "precious").unwrap();
        drop(listen_at(&socket).unwrap());
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&file, &link] {
            let error = listen_at(path).unwrap_err();
            let line =
                format!("{} exists and is not a socket; choose another name", path.display());
            assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::AlreadyExists, line));
        }
        remove_ended(&directory);
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&link).is_ok() && socket.exists());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_an_ended_process_has_left_is_in_nobodys_way() {
        let path = scratch("left");
        drop(listen_at(&path).unwrap());
        assert!(path.exists());
        drop(listen_at(&path).unwrap());
        fs::remove_file(&path).unwrap();
    }
}
