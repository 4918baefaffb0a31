//! A ring of datagram runs in memory that two processes share: one writes, the other reads.
//!
//! Positions only grow. A byte lies at its position modulo the capacity. Neither side trusts the
//! other: an impossible position or record means a broken ring.

use std::io;

use roce_transport::{adapter::Transmit, addr::ROCE_UDP_PORT};
use thiserror::Error;

use super::ring_memory::{
    AtomicU64, CAPACITY, Descriptor, HOT, Ordering, PAGE, RingMemory, START, fence,
};

/// Words in front of the records, each in its own cache line.
const HEAD: usize = 0;
const TAIL: usize = 8;
const ASLEEP: usize = 16;

/// The longest run: a UDP datagram.
pub(crate) const LONGEST: usize = 65_536;

/// Word in place of a record if the next record is at the ring's beginning.
const SKIP: u64 = u64::MAX;
const WORD: u64 = 8;

/// The other side wrote something impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the memory shared with another process is corrupt")]
pub(crate) struct Broken;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunHeader {
    pub(crate) length: usize,
    /// Length of every datagram but the last.
    pub(crate) segment: usize,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// 4791, or from 0xC001 on.
    pub(crate) src_port: u16,
    /// True if an adapter has built the datagrams.
    pub(crate) checksum_verified: bool,
}

/// The header is one word: the lengths less one (16 bits each), 16 bits for the rest, traffic
/// class, hop limit. The rest is the source port (14 bits, 0: 4791) and `checksum_verified`.
const VERIFIED: u16 = 1 << 15;
const PORT: u16 = 0x3FFF;

impl RunHeader {
    pub(crate) fn of(run: &Transmit, checksum_verified: bool) -> Self {
        let &Transmit { traffic_class, hop_limit, src_port, segment, ref range, .. } = run;
        Self {
            length: range.len(),
            segment: segment.min(range.len()),
            traffic_class,
            hop_limit,
            src_port,
            checksum_verified,
        }
    }

    const fn word(self) -> u64 {
        let port = if self.src_port == ROCE_UDP_PORT { 0 } else { self.src_port & PORT };
        let rest = port | if self.checksum_verified { VERIFIED } else { 0 };
        // a run has at least one byte
        let [a, b] = (self.length.saturating_sub(1) as u16).to_le_bytes();
        let [c, d] = (self.segment.saturating_sub(1) as u16).to_le_bytes();
        let [e, f] = rest.to_le_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, self.traffic_class, self.hop_limit])
    }

    const fn parse(word: u64) -> Result<Self, Broken> {
        let [a, b, c, d, e, f, traffic_class, hop_limit] = word.to_le_bytes();
        let length = u16::from_le_bytes([a, b]) as usize + 1;
        let segment = u16::from_le_bytes([c, d]) as usize + 1;
        let rest = u16::from_le_bytes([e, f]);
        if segment > length || rest & !(PORT | VERIFIED) != 0 {
            return Err(Broken);
        }
        let src_port = match rest & PORT {
            0 => ROCE_UDP_PORT,
            port => port | !PORT,
        };
        let checksum_verified = rest & VERIFIED != 0;
        Ok(Self { length, segment, traffic_class, hop_limit, src_port, checksum_verified })
    }

    const fn size(self) -> u64 {
        WORD + (self.length as u64).next_multiple_of(WORD)
    }
}

struct Ring(RingMemory);

impl Ring {
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0.words()[index]
    }

    fn at(&self, position: u64) -> &AtomicU64 {
        self.word(((START + position % CAPACITY) / WORD) as usize)
    }
}

pub(crate) struct Writer {
    ring: Ring,
    head: u64,
    /// Reader's position at the last look.
    tail: u64,
    /// Last page written.
    page: u64,
}

impl Writer {
    pub(crate) fn new() -> io::Result<(Self, Descriptor)> {
        let (memory, descriptor) = RingMemory::create()?;
        Ok((Self { ring: Ring(memory), head: 0, tail: 0, page: 0 }, descriptor))
    }

    /// Writes a run; `false`: no room now.
    pub(crate) fn push(&mut self, header: RunHeader, bytes: &[u8]) -> Result<bool, Broken> {
        debug_assert!(bytes.len() == header.length, "the header says how long it is");
        let position = self.head % CAPACITY;
        let skipped = if position + header.size() > CAPACITY || self.may_restart(position)? {
            CAPACITY - position
        } else {
            0
        };
        let end = self.head + skipped + header.size();
        if end - self.tail > CAPACITY {
            self.look()?;
            if end - self.tail > CAPACITY {
                return Ok(false);
            }
        }
        if skipped > 0 {
            self.ring.at(self.head).store(SKIP, Ordering::Relaxed);
        }
        let start = self.head + skipped;
        self.ring.at(start).store(header.word(), Ordering::Relaxed);
        self.ring.0.write(START + start % CAPACITY + WORD, bytes).map_err(|_| Broken)?;
        self.head = end;
        self.ring.word(HEAD).store(end, Ordering::Release);
        Ok(true)
    }

    /// True if the hot part is full and the reader has read everything; looks once per page.
    fn may_restart(&mut self, position: u64) -> Result<bool, Broken> {
        if position < HOT || position / PAGE == self.page {
            return Ok(false);
        }
        self.page = position / PAGE;
        self.look()?;
        Ok(self.tail == self.head)
    }

    fn look(&mut self) -> Result<(), Broken> {
        let tail = self.ring.word(TAIL).load(Ordering::Acquire);
        if self.head.checked_sub(tail).is_none_or(|filled| filled > CAPACITY) {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(())
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.ring.word(TAIL).load(Ordering::Acquire) != self.head
    }

    /// True if the reader sleeps and must be woken; once per sleep.
    pub(crate) fn must_wake(&self) -> bool {
        // Either this load sees the sleeper, or the sleeper, after its store, sees the written run.
        fence(Ordering::SeqCst);
        let asleep = self.ring.word(ASLEEP);
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }
}

pub(crate) struct Reader {
    ring: Ring,
    tail: u64,
    /// Writer's position at the last look.
    head: u64,
}

impl Reader {
    pub(crate) fn new(memory: Descriptor) -> io::Result<Self> {
        Ok(Self { ring: Ring(RingMemory::open(memory)?), tail: 0, head: 0 })
    }

    /// Copies the next run into `buffer`, which holds [`LONGEST`] bytes.
    pub(crate) fn pop(&mut self, buffer: &mut [u8]) -> Result<Option<RunHeader>, Broken> {
        loop {
            if self.head == self.tail {
                self.head = self.ring.word(HEAD).load(Ordering::Acquire);
                match self.head.checked_sub(self.tail) {
                    Some(0) => return Ok(None),
                    Some(filled) if filled <= CAPACITY && filled.is_multiple_of(WORD) => {}
                    _ => return Err(Broken),
                }
            }
            let position = self.tail % CAPACITY;
            let word = self.ring.at(self.tail).load(Ordering::Relaxed);
            let mut found = None;
            let taken = if word == SKIP {
                // never at the beginning, or skips could go on forever
                if position == 0 {
                    return Err(Broken);
                }
                CAPACITY - position
            } else {
                let header = found.insert(RunHeader::parse(word)?);
                header.size()
            };
            if position + taken > CAPACITY || taken > self.head - self.tail {
                return Err(Broken);
            }
            if let Some(header) = found {
                let to = buffer.get_mut(..header.length).ok_or(Broken)?;
                self.ring.0.read(START + position + WORD, to).map_err(|_| Broken)?;
            }
            self.tail += taken;
            self.ring.word(TAIL).store(self.tail, Ordering::Release);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    pub(crate) const fn never_read(&self) -> bool {
        self.tail == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.word(HEAD).load(Ordering::Acquire) == self.tail
    }

    /// Asks for a wakeup with the next run. True if the ring is empty: only then may a thread
    /// sleep.
    pub(crate) fn park(&self) -> bool {
        self.set_asleep(true);
        self.is_empty()
    }

    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.ring.word(ASLEEP).store(u64::from(asleep), Ordering::Relaxed);
        fence(Ordering::SeqCst); // see `must_wake`
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Writer, Reader) {
        let (writer, memory) = Writer::new().unwrap();
        (writer, Reader::new(memory).unwrap())
    }

    fn header(length: usize) -> RunHeader {
        RunHeader {
            length,
            segment: length.div_ceil(3),
            traffic_class: 0xA5,
            hop_limit: 0xFF,
            src_port: if length < 9 { ROCE_UDP_PORT } else { 0xC001 + length as u16 % 0x3FFF },
            checksum_verified: length.is_multiple_of(2),
        }
    }

    fn bytes(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|index| (index.wrapping_mul(31) ^ seed) as u8).collect()
    }

    #[test]
    fn runs_come_out_as_they_went_in_many_times_around() {
        let (mut writer, mut reader) = ring();
        let mut buffer = vec![0; LONGEST];
        let mut lengths = [1, 7, 8, 9, 24, 4096, 65_487, LONGEST].into_iter().cycle();
        for round in 0..400 {
            let batch: Vec<_> = lengths.by_ref().take(1 + round % 13).collect();
            for (index, &length) in batch.iter().enumerate() {
                assert_eq!(writer.push(header(length), &bytes(length, index)), Ok(true));
            }
            assert!(!reader.is_empty());
            for (index, &length) in batch.iter().enumerate() {
                assert_eq!(reader.pop(&mut buffer), Ok(Some(header(length))));
                assert_eq!(buffer[..length], bytes(length, index));
            }
            assert_eq!((reader.pop(&mut buffer), reader.is_empty()), (Ok(None), true));
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_something_is_read() {
        let (mut writer, mut reader) = ring();
        let mut buffer = vec![0; LONGEST];
        let run = bytes(60_000, 1);
        for _ in 0..5 {
            while writer.push(header(run.len()), &run).unwrap() {}
            let small = (0..LONGEST).take_while(|_| writer.push(header(1), &[9]).unwrap()).count();
            let mut large = 0;
            while let Some(found) = reader.pop(&mut buffer).unwrap() {
                large += usize::from(found.length > 1);
            }
            assert!(
                large * 60_008 + small * 16 > CAPACITY as usize - 70_000,
                "{large} and {small}"
            );
        }
    }

    #[test]
    fn a_reader_that_keeps_up_keeps_the_ring_small() {
        let (mut writer, mut reader) = ring();
        let mut buffer = vec![0; LONGEST];
        for number in 0..2000 {
            writer.push(header(5000), &bytes(5000, number)).unwrap();
            reader.pop(&mut buffer).unwrap().unwrap();
            assert_eq!(buffer[..5000], bytes(5000, number));
            assert!(writer.head % CAPACITY < HOT + 10_000);
        }
    }

    #[test]
    fn what_cannot_be_is_noticed() {
        let mut buffer = vec![0; LONGEST];
        for head in [3, 7, CAPACITY + 8, u64::MAX, u64::MAX - 7] {
            let (_writer, mut reader) = ring();
            reader.ring.word(HEAD).store(head, Ordering::Relaxed);
            assert_eq!(reader.pop(&mut buffer), Err(Broken), "{head}");
        }
        let word = |length: u64, segment: u64| (length - 1) | (segment - 1) << 16;
        for word in [word(5, 6), word(65_536, 8), word(9, 9), word(8, 8) | 1 << 46, SKIP - 1] {
            let (writer, mut reader) = ring();
            writer.ring.at(0).store(word, Ordering::Relaxed);
            writer.ring.word(HEAD).store(16, Ordering::Relaxed); // eight bytes of a record
            assert_eq!(reader.pop(&mut buffer), Err(Broken), "{word:#x}");
        }
        let (writer, mut reader) = ring();
        writer.ring.at(0).store(SKIP, Ordering::Relaxed);
        writer.ring.word(HEAD).store(8, Ordering::Relaxed);
        assert_eq!(reader.pop(&mut buffer), Err(Broken));
        // endless skips would keep the reader busy
        let (mut writer, mut reader) = ring();
        writer.ring.at(0).store(SKIP, Ordering::Relaxed);
        writer.ring.word(HEAD).store(CAPACITY, Ordering::Relaxed);
        assert_eq!(reader.pop(&mut buffer), Err(Broken));
        for tail in [8, u64::MAX] {
            writer.ring.word(TAIL).store(tail, Ordering::Relaxed);
            let mut result = Ok(true);
            while result == Ok(true) {
                result = writer.push(header(60_000), &bytes(60_000, 0));
            }
            assert_eq!(result, if tail == 8 { Ok(false) } else { Err(Broken) });
        }
    }

    #[test]
    fn a_reader_that_says_it_was_ahead_is_noticed() {
        for tail in [HOT * 2, u64::MAX] {
            let (mut writer, _reader) = ring();
            let push = |writer: &mut Writer| writer.push(header(5000), &bytes(5000, 0));
            while writer.head < HOT {
                assert_eq!(push(&mut writer), Ok(true));
            }
            writer.ring.word(TAIL).store(tail, Ordering::Relaxed);
            // noticed with the next page at the latest
            let results = [push(&mut writer), push(&mut writer)];
            assert!(results.contains(&Err(Broken)), "{results:?}");
        }
    }

    #[test]
    fn a_sleeper_is_woken_once() {
        let (mut writer, reader) = ring();
        assert!(!writer.must_wake());
        reader.set_asleep(true);
        writer.push(header(3), &[1, 2, 3]).unwrap();
        assert_eq!([writer.must_wake(), writer.must_wake()], [true, false]);
        reader.set_asleep(true);
        reader.set_asleep(false);
        assert!(!writer.must_wake());
    }

    #[test]
    fn a_sleeper_and_a_writer_never_miss_each_other() {
        const RUNS: u64 = 20_000;
        let (mut writer, mut reader) = ring();
        let (wake, woken) = std::sync::mpsc::channel();
        let write = std::thread::spawn(move || {
            for number in 0..RUNS {
                while !writer.push(header(8), &number.to_ne_bytes()).unwrap() {
                    std::thread::yield_now();
                }
                if writer.must_wake() {
                    wake.send(()).unwrap();
                }
            }
        });
        let mut buffer = vec![0; LONGEST];
        for number in 0..RUNS {
            while reader.pop(&mut buffer).unwrap().is_none() {
                reader.set_asleep(true);
                if reader.is_empty() {
                    woken.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
                } else {
                    reader.set_asleep(false);
                }
            }
            assert_eq!(buffer[..8], number.to_ne_bytes());
        }
        write.join().unwrap();
    }
}
