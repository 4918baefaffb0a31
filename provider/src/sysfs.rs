//! Counters in the files of `roce run --sysfs`, for `/sys/class/infiniband`.
//!
//! A file sums all processes since its creation, as in the kernel. A process adds increments under
//! a `flock` on the port's directory, or at the next change. Numbers only grow: a file written in
//! place shows the old or new number.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use roce_transport::event::Counters;
use rustix::fs::{FlockOperation, flock};

use crate::{
    LinkCounters, Profile,
    engine::CounterSink,
    port_counters::{PortCounter, port_counters},
    variables,
};

/// Attempts to take a lock held for microseconds.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct CounterFiles {
    port: PathBuf,
    profile: Option<Profile>,
    added: Vec<PortCounter>,
    process: u32,
}

impl CounterFiles {
    /// `None` if not configured.
    pub(crate) fn of(device: &str, profile: Option<&Profile>) -> Option<Self> {
        let classes = variables::value(variables::SYSFS).map(PathBuf::from)?;
        Self::below(&classes, device, profile)
    }

    fn below(classes: &Path, device: &str, profile: Option<&Profile>) -> Option<Self> {
        let port = classes.join("infiniband").join(device).join("ports/1");
        let added = port_counters(profile, &Counters::default(), &LinkCounters::default());
        let process = std::process::id();
        port.is_dir().then(|| Self { port, profile: profile.cloned(), added, process })
    }

    fn add(&mut self, now: &[PortCounter]) -> io::Result<()> {
        let Some(_lock) = self.lock()? else { return Ok(()) };
        for (before, now) in self.added.iter_mut().zip(now) {
            if now.value > before.value {
                let file = self.port.join(now.directory).join(now.name);
                match add_to(&file, now.value - before.value) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => before.value = now.value, // or the file is missing
                }
            }
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<Option<File>> {
        let directory = File::open(&self.port)?;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                thread::sleep(PAUSE);
            }
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Some(directory));
            }
        }
        Ok(None)
    }
}

fn add_to(path: &Path, number: u64) -> io::Result<()> {
    let before = fs::read_to_string(path)?.trim_ascii().parse().unwrap_or(0_u64);
    let text = format!("{}\n", before.wrapping_add(number));
    File::options().write(true).open(path)?.write_all_at(text.as_bytes(), 0)
}

impl CounterSink for CounterFiles {
    fn publish(&mut self, counters: &Counters, link: &LinkCounters, _: &[String]) {
        if self.process == std::process::id() {
            let now = port_counters(self.profile.as_ref(), counters, link);
            let _ = self.add(&now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(classes: &Path, name: &str) -> String {
        fs::read_to_string(classes.join("infiniband/mlx5_0/ports/1").join(name)).unwrap()
    }

    #[test]
    fn processes_add_up() {
        let classes = std::env::temp_dir().join(format!("roce-sysfs-{}", std::process::id()));
        let profile = Profile::named("connectx-5").unwrap();
        assert!(CounterFiles::below(&classes, "mlx5_0", Some(&profile)).is_none());
        let port = classes.join("infiniband/mlx5_0/ports/1");
        for PortCounter { directory, name, value } in
            port_counters(Some(&profile), &Counters::default(), &LinkCounters::default())
        {
            assert_eq!(value, 0);
            fs::create_dir_all(port.join(directory)).unwrap();
            fs::write(port.join(directory).join(name), "0\n").unwrap();
        }
        let files = || CounterFiles::below(&classes, "mlx5_0", Some(&profile)).unwrap();
        let (mut one, mut other) = (files(), files());
        let link = LinkCounters::default();
        let counted = |sent_bytes, timeouts| {
            let mut counters = Counters::default();
            (counters.sent_bytes, counters.timeouts) = (sent_bytes, timeouts);
            counters
        };
        one.publish(&counted(4000, 3), &link, &[]);
        other.publish(&counted(400, 0), &link, &[]);
        one.publish(&counted(8002, 3), &link, &[]);
        assert_eq!(read(&classes, "counters/port_xmit_data"), "2100\n");
        assert_eq!(read(&classes, "hw_counters/local_ack_timeout_err"), "3\n");
        assert_eq!(read(&classes, "hw_counters/out_of_sequence"), "0\n");

        // a locked directory delays the increments
        let held = File::open(&port).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        other.publish(&counted(800, 0), &link, &[]);
        assert_eq!(read(&classes, "counters/port_xmit_data"), "2100\n");
        drop(held);
        other.publish(&counted(800, 0), &link, &[]);
        assert_eq!(read(&classes, "counters/port_xmit_data"), "2200\n");
        fs::remove_dir_all(&classes).unwrap();
    }
}
