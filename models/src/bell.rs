//! A model's eventfd: a thread sleeps until another writes to it.

use loom::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Sleeps until rung since last [cleared](Self::clear).
    pub(crate) fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
    }

    /// True if rung since last cleared, for a thread that waits for other things, too.
    pub(crate) fn is_rung(&self) -> bool {
        *self.rung.lock().unwrap()
    }

    pub(crate) fn clear(&self) {
        *self.rung.lock().unwrap() = false;
    }
}
