use rand_core::RngCore;
use roce_fuzz::share::{Reach, share};

use crate::common::{bytes, each_seed, replay};

#[test]
fn share_holds() {
    replay("share", |bytes| {
        share(bytes);
    });
    let mut total = Reach::default();
    each_seed(60, |rng| {
        // clients join, each with a partition
        let mut program = Vec::new();
        for client in 0..8 + rng.next_u32() % 8 {
            program.extend([1, 0, 9, client as u8, 0, 1, 0, 0]);
        }
        for _ in 0..20 {
            program.extend(bytes(rng, 0..12));
            program.extend([0, 0, 0, 0, 5, 1 + (rng.next_u32() % 16) as u8, 7, 0]);
        }
        let Reach { connected, answered, received, honest } = share(&program);
        total.connected += connected;
        total.answered += answered;
        total.received += received;
        total.honest += honest;
    });
    let Reach { connected, answered, received, honest } = total;
    assert!(connected > 300 && answered > 300 && received > 100 && honest > 300, "{total:?}");
}
