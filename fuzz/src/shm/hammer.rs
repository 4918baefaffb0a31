//! A thread that keeps writing to shared memory.

use std::{
    fs::File,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::hostile::{START, write_word};

/// Drop ends the thread.
pub(super) struct Hammer {
    memories: Arc<Mutex<Vec<File>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hammer {
    pub(super) fn start() -> Self {
        let (memories, is_over) =
            (Arc::<Mutex<Vec<File>>>::default(), Arc::new(AtomicBool::new(false)));
        let (written, over) = (Arc::clone(&memories), is_over.clone());
        let thread = thread::spawn(move || {
            let mut random = 1;
            while !over.load(Ordering::Relaxed) {
                for memory in written.lock().unwrap().iter() {
                    strike(memory, &mut random);
                }
            }
        });
        Self { memories, is_over, thread: Some(thread) }
    }

    pub(super) fn write_to<'a>(&self, memories: impl Iterator<Item = &'a File>) {
        *self.memories.lock().unwrap() = memories.map(|file| file.try_clone().unwrap()).collect();
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Mostly a plausible word.
fn strike(memory: &File, random: &mut u64) {
    // xorshift
    for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
        *random ^= if left { *random << shift } else { *random >> shift };
    }
    let (at, value) = (*random >> 8 & 0xFF, *random >> 16);
    match at {
        0..16 => write_word(memory, 0, value % 4096 * 8),
        16..20 => write_word(memory, at % 16 * 64, value),
        20..40 => write_word(memory, START + at * 8, u64::MAX),
        _ => write_word(memory, START + at * 8, value & 0x3FF | (value >> 8 & 0xFF) << 16),
    }
}
