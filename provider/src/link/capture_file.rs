//! A device's capture file.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{Access, FlockOperation, access, flock},
    io::Errno,
};

use super::{
    Capture, Observed, Observer,
    capture::{is_the_systems, link_refused, open_file},
};
use crate::{fabric::Direction, sync::Mutex};

/// Created with the first packet: an unused device leaves no file.
///
/// In the name, `%d` is the device's name, `%p` the process number, `%%` a percent sign. Files of
/// this process, or being written by another, are kept: next is `name.2.pcapng`, and so on. Files
/// of ended processes are overwritten.
pub(crate) struct CaptureFile {
    path: PathBuf,
    state: State,
}

enum State {
    Waiting,
    Open(Box<Capture>),
    Failed,
}

/// Names used by this process, or by the one that it was forked from.
static USED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

const MOST: u32 = 10_000;

impl CaptureFile {
    /// Checks that the file is writable.
    pub(crate) fn new(pattern: &Path, device: &str) -> io::Result<Self> {
        // The program may change directory before the first packet.
        let path = std::path::absolute(expand(pattern, device, std::process::id()))?;
        let is_link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        if is_link && !is_the_systems(&path) {
            return Err(link_refused());
        }
        let state = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                access(&path, Access::WRITE_OK)?;
                State::Waiting
            }
            // A pipe or terminal: there is only one, and its reader waits for the start.
            Ok(_) => State::Open(Box::new(Capture::create(&path)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                access(path.parent().unwrap_or(&path), Access::WRITE_OK | Access::EXEC_OK)?;
                State::Waiting
            }
            Err(error) => return Err(error),
        };
        Ok(Self { path, state })
    }

    fn capture(&mut self) -> Option<&mut Capture> {
        if matches!(self.state, State::Waiting) {
            self.open();
        }
        if let State::Open(capture) = &mut self.state { Some(capture) } else { None }
    }

    fn open(&mut self) {
        let mut used = USED.lock();
        for number in 1..=MOST {
            let path = numbered(&self.path, number);
            if used.contains(&path) {
                continue;
            }
            match claim(&path) {
                Ok(Some(file)) => {
                    used.insert(path);
                    self.state = Capture::to(file)
                        .map_or(State::Failed, |capture| State::Open(Box::new(capture)));
                    return;
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
        self.state = State::Failed;
    }
}

impl Observer for CaptureFile {
    fn observe(&mut self, observed: &Observed<'_>) {
        if let Some(capture) = self.capture() {
            capture.observe(observed);
        }
    }

    fn observe_frame(&mut self, at: Duration, direction: Direction, frame: &[u8]) {
        if let Some(capture) = self.capture() {
            capture.observe_frame(at, direction, frame);
        }
    }
}

/// The file, empty and locked while open; `None` if a running process has it.
fn claim(path: &Path) -> io::Result<Option<File>> {
    let file = open_file(path, false)?;
    // other errors: a file system without locks
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(None);
    }
    file.set_len(0)?;
    Ok(Some(file))
}

fn expand(pattern: &Path, device: &str, pid: u32) -> PathBuf {
    let mut expanded = Vec::new();
    let mut bytes = pattern.as_os_str().as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        let next = if byte == b'%' { bytes.clone().next() } else { None };
        match next {
            // An in-process device may have any name.
            Some(b'd') => {
                expanded.extend(device.bytes().map(|byte| if byte == b'/' { b'_' } else { byte }));
            }
            Some(b'p') => expanded.extend(pid.to_string().bytes()),
            Some(b'%') => expanded.push(b'%'),
            _ => {
                expanded.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    PathBuf::from(OsString::from_vec(expanded))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(OsStr::new("."));
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{MetadataExt, symlink},
        time::Duration,
    };

    use roce_transport::wire::{FrameFields, Ident, NetHeader};

    use super::{super::Direction, *};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("roce-capture-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn files(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn packet(capture: &mut CaptureFile) {
        let net = NetHeader {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            src_port: 49152,
            traffic_class: 0,
            hop_limit: 64,
            ident: Ident::Known { id: 0, dont_fragment: true },
            frame: FrameFields::default(),
        };
        let at = Duration::from_secs(1);
        capture.observe(&Observed {
            at,
            direction: Direction::Sent,
            net: &net,
            bytes: &[0; 16],
            disposition: None,
            sender_qp: None,
        });
    }

    #[test]
    fn there_is_a_file_for_each_device_that_is_used() {
        let scratch = Scratch::new("devices");
        let mut captures =
            [0; 3].map(|_| CaptureFile::new(&scratch.0.join("x.pcapng"), "roce_lo").unwrap());
        assert_eq!(scratch.files(), Vec::<String>::new());
        packet(&mut captures[0]);
        packet(&mut captures[2]);
        packet(&mut captures[0]);
        assert_eq!(scratch.files(), ["x.2.pcapng", "x.pcapng"]);
        // Finished files of this process are kept, too.
        drop(captures);
        let before = fs::read(scratch.0.join("x.pcapng")).unwrap();
        packet(&mut CaptureFile::new(&scratch.0.join("x.pcapng"), "roce_lo").unwrap());
        assert_eq!(scratch.files(), ["x.2.pcapng", "x.3.pcapng", "x.pcapng"]);
        assert_eq!(fs::read(scratch.0.join("x.pcapng")).unwrap(), before);
        assert!(
            fs::read(scratch.0.join("x.2.pcapng")).unwrap().len() < before.len(),
            "it has a packet less"
        );
    }

    #[test]
    fn a_file_that_another_writes_is_left_alone_and_an_old_one_is_not() {
        let scratch = Scratch::new("others");
        fs::write(scratch.0.join("x"), "of a process that lives").unwrap();
        let other = File::open(scratch.0.join("x")).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        fs::write(scratch.0.join("x.2"), "of one that has ended".repeat(100)).unwrap();
        packet(&mut CaptureFile::new(&scratch.0.join("x"), "roce_lo").unwrap());
        assert_eq!(scratch.files(), ["x", "x.2"]);
        assert_eq!(fs::read(scratch.0.join("x")).unwrap(), b"of a process that lives");
        assert_eq!(fs::read(scratch.0.join("x.2")).unwrap()[..4], 0x0A0D_0D0Au32.to_ne_bytes());
    }

    #[test]
    fn names_have_patterns() {
        let expand = |pattern: &str| {
            expand(Path::new(pattern), "fabric/a", 42).into_os_string().into_string().unwrap()
        };
        assert_eq!(expand("/tmp/%d-%p.pcapng"), "/tmp/fabric_a-42.pcapng");
        assert_eq!(expand("100%%d%x%"), "100%d%x%");
        let numbered =
            |path: &str| numbered(Path::new(path), 2).into_os_string().into_string().unwrap();
        assert_eq!(
            ["a.b/x", "a.b/x.y.z", "/.x"].map(numbered),
            ["a.b/x.2", "a.b/x.y.2.z", "/.x.2"]
        );
    }

    #[test]
    fn a_capture_is_for_its_user_alone() {
        let scratch = Scratch::new("mode");
        packet(&mut CaptureFile::new(&scratch.0.join("x"), "roce_lo").unwrap());
        Capture::create(scratch.0.join("y")).unwrap();
        for name in ["x", "y"] {
            let mode = fs::metadata(scratch.0.join(name)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    /// In a directory that others can write, they may have made the link.
    #[test]
    fn a_link_is_not_followed() {
        let scratch = Scratch::new("link");
        let [link, file] = ["link", "file"].map(|name| scratch.0.join(name));
        fs::write(&file, "precious").unwrap();
        symlink(&file, &link).unwrap();
        let refused = [
            CaptureFile::new(&link, "roce_lo").map(|_| ()),
            Capture::create(&link).map(|_| ()),
            claim(&link).map(|_| ()),
        ];
        for result in refused {
            let said = result.unwrap_err().to_string();
            assert!(said.contains("is a symbolic link") && said.lines().count() == 1, "{said}");
        }
        // a link made between the check and the first packet
        let mut capture = CaptureFile::new(&scratch.0.join("late"), "roce_lo").unwrap();
        symlink(&file, scratch.0.join("late")).unwrap();
        packet(&mut capture);
        // a dangling link
        fs::remove_file(&link).unwrap();
        symlink(scratch.0.join("new"), &link).unwrap();
        CaptureFile::new(&link, "roce_lo").map(|_| ()).unwrap_err();
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        assert_eq!(scratch.files(), ["file", "late", "link"]);
        assert!(is_the_systems(Path::new("/dev/stdout")) && is_the_systems(Path::new("/dev/fd/1")));
        assert!(!is_the_systems(Path::new("/dev/shm/x")));
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let scratch = Scratch::new("refused");
        let refused = |path: &str| {
            CaptureFile::new(&scratch.0.join(path), "roce_lo").map(|_| ()).unwrap_err().kind()
        };
        assert_eq!(refused("no/such/x.pcapng"), io::ErrorKind::NotFound);
        assert_eq!(refused(""), io::ErrorKind::IsADirectory);
    }
}
