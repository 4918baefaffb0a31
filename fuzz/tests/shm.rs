//! It uses the host's sockets and names.

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;
use roce_fuzz::shm::{Reach, shm, shm_with_hammer};

use crate::common::{bytes, each_seed, replay};

#[test]
fn shm_holds() {
    replay("shm", |bytes| {
        shm(bytes);
    });
    let mut total = Reach::default();
    let mut add = |Reach { received, honest, granted, forwarded }| {
        total.received += received;
        total.honest += honest;
        total.granted += granted;
        total.forwarded += forwarded;
    };
    each_seed(30, |rng| add(shm(&bytes(rng, 0..600))));
    each_seed(90, |rng| add(shm(&program(rng))));
    assert!(
        total.received > 1_000
            && total.honest > 3_000
            && total.granted > 300
            && total.forwarded > 20,
        "{total:?}"
    );
    each_seed(30, |rng| {
        shm_with_hammer(&program(rng));
    });
}

/// Rings to the device, processes at its address, a ring from it, mostly valid steps.
fn program(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut any = || rng.next_u32() as u8;
    // mostly a device with its own address, and accepted greetings
    let mut program = vec![if any() < 230 { any() % 192 } else { any() }];
    for connection in 0..8 {
        // two to the device, two to its address's receiver
        let kind = if any() < 240 { connection / 2 % 2 } else { any() };
        let (is_share, partition) = (connection == 2, 1 + connection % 8);
        let damage = if is_share { 0 } else { 2 * (partition - 1) + 1 };
        program.extend([0, 1, connection, kind, damage]);
    }
    program.extend([11, 9, 9, 9, 12, if any() < 230 { 0 } else { any() }, 1, 8]);
    for _ in 0..10 + any() % 90 {
        match any() % 12 {
            0 => program.push(0),
            1..=2 => program.extend([1, any(), any(), any() % 250]),
            3..=4 => {
                let how = if any() < 250 { any() & 0xE4 } else { any() };
                program.extend([4, any() & 1, how, any(), any() & 3, any(), any() & 3]);
            }
            5 => program.extend([10, any() % 210, any() % 8]),
            6 => program.extend([7, any(), any()]),
            7 => program.push(8),
            8 => program.extend([11, any(), any(), any()]),
            9 => program.extend([12, any() % 160, 1]),
            10 => {
                let at = if any() < 128 { 8 } else { any() };
                let high = if any() < 64 { 0xFF } else { 0 };
                program.extend([9, any(), at, any(), any(), any() & 31, high, 0, 0, 0, 0]);
            }
            _ => program.extend((0..any() % 12).map(|_| any())),
        }
    }
    program
}
