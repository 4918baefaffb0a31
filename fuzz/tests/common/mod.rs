use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

pub(crate) fn bytes(rng: &mut ChaCha8Rng, lengths: std::ops::Range<u32>) -> Vec<u8> {
    let length = lengths.start + rng.next_u32() % (lengths.end - lengths.start);
    let mut bytes = vec![0; length as usize];
    rng.fill_bytes(&mut bytes);
    bytes
}

pub(crate) fn replay(target: &str, body: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no inputs", directory.display());
    for file in files {
        let bytes = fs::read(&file).unwrap();
        run(&file.display().to_string(), || body(&bytes));
    }
}

pub(crate) fn each_seed(count: u64, mut body: impl FnMut(&mut ChaCha8Rng)) {
    for seed in 0..count {
        run(&format!("seed {seed}"), || body(&mut ChaCha8Rng::seed_from_u64(seed)));
    }
}

fn run(what: &str, body: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(body)).is_ok(), "failed on {what}");
}
