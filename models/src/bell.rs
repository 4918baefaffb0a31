//! A model's eventfd.

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

    pub(crate) fn clear(&self) {
        *self.rung.lock().unwrap() = false;
    }
}
