//! Yields and spinning in virtual time.

pub(super) mod thread {
    pub(in super::super) use super::super::machine::{pause as sleep, yield_now};
}

pub(super) mod hint {
    pub(in super::super) fn spin_loop() {
        super::super::machine::spend(|costs| costs.lock);
    }
}
