//! Reaper: a process that outlives programs.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use roce_transport::{cm::CmConfig, share::IdPartition, time::Instant};
use tracing::{debug, info, warn};

use crate::{
    clock,
    device::{Device, OpenError, OpenOptions},
    link::{Left, Members},
    readiness::{is_readable, wait},
    variables::REAPER,
    verbs::Context,
};

/// Time limit for peers' responses.
const LIMIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

/// Ends dead programs' connections, as a kernel does.
///
/// Serves processes with the [`variable`](Self::variable) that are alone at an address: another
/// process there would end the connections itself. Works in [`wait`](Self::wait) and
/// [`finish`](Self::finish), and handles no traffic.
pub struct Reaper {
    members: Members,
    /// Devices at dead processes' addresses, with deadlines.
    ending: Vec<(Instant, Context)>,
}

impl Reaper {
    /// Creates a reaper.
    ///
    /// # Errors
    /// If the system has no socket.
    pub fn new() -> io::Result<Self> {
        Ok(Self { members: Members::new()?, ending: Vec::new() })
    }

    /// Name and value of the processes' environment variable.
    #[must_use]
    pub fn variable(&self) -> (&'static str, &str) {
        (REAPER, &self.members.variable)
    }

    /// Waits for a readable descriptor and ends dead processes' connections meanwhile.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub fn wait(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        while !descriptors.iter().any(|descriptor| is_readable(descriptor.as_fd())) {
            self.attend();
            let mut all = self.members.descriptors();
            all.extend(descriptors);
            wait(&all, self.deadline().map(|due| due.since(clock::now())))?;
        }
        Ok(())
    }

    /// Ends dead processes' connections, waiting up to 2 s. Live processes continue.
    pub fn finish(mut self) {
        let end = clock::now().plus(LIMIT);
        self.attend();
        while (self.members.is_busy() || !self.ending.is_empty()) && clock::now() < end {
            std::thread::sleep(LOOK);
            self.attend();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let ending = (!self.ending.is_empty()).then(|| clock::now().plus(LOOK));
        ending.into_iter().chain(self.members.deadline()).min()
    }

    fn attend(&mut self) {
        let now = clock::now();
        for left in self.members.attend(now) {
            match notify_peers(&left) {
                Ok(context) => self.ending.push((now.plus(LIMIT), context)),
                Err(error) => {
                    warn!(address = %left.address, %error, "peers are not notified of a process's end");
                }
            }
        }
        self.ending.retain(|(until, context)| now < *until && context.cm_count() > 0);
    }
}

opaque_debug!(Reaper, |it| variable: it.variable());

/// Ends an abandoned address's connections. Keep the device until peers respond.
fn notify_peers(left: &Left) -> Result<Context, OpenError> {
    let Left { address, partitions, records } = left;
    info!(%address, connections = records.len(), "processes have ended");
    // retries follow soon
    let cm = CmConfig { response_timeout: 15, ..CmConfig::default() };
    let options = OpenOptions { cm, ..OpenOptions::default() };
    // an unused partition: responses address the others
    let own = IdPartition::all().find(|partition| !partitions.contains(partition));
    let context = Device::at(*address)?.open_unpublished(own, options)?;
    for record in records {
        let end =
            context.inner.engine.command(|adapter, now| adapter.cm_end_for_another(now, record));
        if let Err(error) = end {
            debug!(%address, %error, "a record of no connection");
        }
    }
    Ok(context)
}
