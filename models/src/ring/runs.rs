//! Rings of runs in shared memory: one process writes, another's threads read and sleep.

use std::sync::Arc;

use loom::{sync::Mutex, thread};

use super::ring::{Reader, RunHeader, Writer};
use crate::{bell::Bell, check};

/// A run of 8 bytes fills a quarter of the ring.
const LENGTH: usize = 8;

fn header() -> RunHeader {
    let (traffic_class, hop_limit, src_port) = (0, 64, 4791);
    let checksum_verified = true;
    RunHeader {
        length: LENGTH,
        segment: LENGTH,
        traffic_class,
        hop_limit,
        src_port,
        checksum_verified,
    }
}

fn ring() -> (Writer, Reader) {
    let (writer, memory) = Writer::new().unwrap();
    (writer, Reader::new(memory).unwrap())
}

fn write(writer: &mut Writer, numbers: std::ops::Range<u64>, bell: &Bell) {
    write_and_wake(writer, numbers, || bell.ring());
}

fn write_and_wake(writer: &mut Writer, numbers: std::ops::Range<u64>, wake: impl Fn()) {
    for number in numbers {
        while !writer.push(header(), &(number + 1).to_ne_bytes()).unwrap() {
            thread::yield_now();
        }
        if writer.must_wake() {
            wake();
        }
    }
}

/// Takes the next run and checks its number.
fn take(found: Option<RunHeader>, buffer: &[u8], next: &mut u64) -> bool {
    let Some(found) = found else { return false };
    assert_eq!(found, header(), "the header is torn");
    assert_eq!(buffer[..LENGTH], (*next + 1).to_ne_bytes(), "the run is torn");
    *next += 1;
    true
}

/// A reader sleeps on an empty ring. `looks_again`: obeys [`Reader::park`].
pub fn a_reader_sleeps(looks_again: bool) {
    check(3, move || {
        const COUNT: u64 = 2;
        let (mut writer, mut reader) = ring();
        let bell = Arc::new(Bell::default());
        let other = {
            let bell = bell.clone();
            thread::spawn(move || write(&mut writer, 0..COUNT, &bell))
        };
        let (mut buffer, mut next) = ([0; LENGTH], 0);
        while next < COUNT {
            let found = reader.pop(&mut buffer).unwrap();
            if take(found, &buffer, &mut next) {
                continue;
            }
            if reader.park() || !looks_again {
                bell.wait();
            }
            reader.set_asleep(false);
            bell.clear();
        }
        other.join().unwrap();
    });
}

pub(crate) fn link() -> (Sender, Link) {
    let (writer, reader) = ring();
    (Sender(writer), Link::new(reader))
}

/// The other process.
pub(crate) struct Sender(Writer);

impl Sender {
    /// Sends `count` runs; calls `wake` for each that finds the reader asleep.
    pub(crate) fn send(mut self, count: u64, wake: impl Fn()) {
        write_and_wake(&mut self.0, 0..count, wake);
    }
}

pub(crate) struct Link {
    reader: Reader,
    sleepers: u32,
    next: u64,
}

impl Link {
    fn new(reader: Reader) -> Self {
        Self { reader, sleepers: 0, next: 0 }
    }

    pub(crate) fn received(&self) -> u64 {
        self.next
    }

    /// Like `Inbox::receive`: behind the last run, clears the wakeup, and parks for sleepers.
    pub(crate) fn receive(&mut self, clear: impl FnOnce(), signal: impl FnOnce()) {
        let (mut buffer, before) = ([0; LENGTH], self.next);
        while take(self.reader.pop(&mut buffer).unwrap(), &buffer, &mut self.next) {}
        if self.sleepers == 0 {
            clear();
        } else if self.next > before {
            clear();
            if !self.reader.park() {
                signal();
            }
        }
    }

    /// Like `Inbox::park`.
    pub(crate) fn park(&mut self) -> bool {
        self.sleepers += 1;
        self.reader.park()
    }

    /// Like `Inbox::unpark`.
    pub(crate) fn unpark(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.reader.set_asleep(false);
        }
    }
}

/// One thread sleeps until the last run; another thread takes runs and leaves. `signals`: the other
/// thread restores a wakeup that it has cleared.
pub fn a_thread_takes_what_another_sleeps_for(signals: bool) {
    check(3, move || {
        const COUNT: u64 = 2;
        let (mut writer, reader) = ring();
        let link = Arc::new(Mutex::new(Link::new(reader)));
        let bell = Arc::new(Bell::default());
        let other = {
            let bell = bell.clone();
            thread::spawn(move || write(&mut writer, 0..COUNT, &bell))
        };
        let passer_by = {
            let (link, bell) = (link.clone(), bell.clone());
            thread::spawn(move || {
                let mut link = link.lock().unwrap();
                let signal = || {
                    if signals {
                        bell.ring();
                    }
                };
                link.receive(|| bell.clear(), signal);
                if link.next == COUNT {
                    bell.ring(); // also wakes the sleeper
                }
            })
        };
        loop {
            let mut locked = link.lock().unwrap();
            locked.receive(|| bell.clear(), || bell.ring());
            if locked.next == COUNT {
                break;
            }
            let quiet = locked.park();
            drop(locked);
            if quiet {
                bell.wait();
            }
            link.lock().unwrap().unpark();
        }
        other.join().unwrap();
        passer_by.join().unwrap();
    });
}

/// The writer restarts at the front if the reader has kept up, else goes around or finds no room.
pub fn runs_go_around() {
    check(3, || {
        let (mut writer, mut reader) = ring();
        let (mut buffer, mut next) = ([0; LENGTH], 0);
        // up to the end of the hot part
        write(&mut writer, 0..2, &Bell::default());
        let mut read = |next: &mut u64| take(reader.pop(&mut buffer).unwrap(), &buffer, next);
        assert!(read(&mut next) && read(&mut next));
        let other = thread::spawn(move || {
            let mut push =
                |number: u64| writer.push(header(), &(number + 1).to_ne_bytes()).unwrap();
            (2..7).take_while(|&number| push(number)).count() as u64
        });
        read(&mut next);
        read(&mut next);
        let written = 2 + other.join().unwrap();
        while read(&mut next) {}
        assert_eq!(next, written, "runs are lost");
    });
}
