//! The reaper of a program: a process that stays when the program ends.

use std::{
    fmt, io,
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

/// Longest time that the peers of a process have to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// Time between two looks whether they have.
const LOOK: Duration = Duration::from_millis(1);

/// A reaper, which outlives programs and tells the peers of their connections, as a kernel does,
/// when they end without doing so themselves.
///
/// It is for processes with its [`variable`](Self::variable) in their environment that are alone at
/// an address. If another process has the address, that process tells the peers. The reaper takes
/// no part in what they send and receive. It does its work in [`wait`](Self::wait) and
/// [`finish`](Self::finish).
pub struct Reaper {
    members: Members,
    /// Devices at the addresses of processes that have ended, and until when they wait for answers.
    ending: Vec<(Instant, Context)>,
}

impl Reaper {
    /// A reaper that no process knows yet.
    ///
    /// # Errors
    /// When the system has no socket for it.
    pub fn new() -> io::Result<Self> {
        Ok(Self { members: Members::new()?, ending: Vec::new() })
    }

    /// Name and value of the variable of the environment by which processes know it.
    #[must_use]
    pub fn variable(&self) -> (&'static str, &str) {
        (REAPER, self.members.variable())
    }

    /// Waits until one of the descriptors is readable, and sees to what processes leave meanwhile.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        while !descriptors.iter().any(|descriptor| is_readable(descriptor.as_fd())) {
            self.attend();
            let mut all = self.members.descriptors();
            all.extend(descriptors);
            wait(&all, self.deadline().map(|due| due.since(clock::now())))?;
        }
        Ok(())
    }

    /// Sees to what is left by processes that have ended, but waits for answers only for two
    /// seconds. Others go on without the reaper.
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
            match tell_peers(&left) {
                Ok(context) => self.ending.push((now.plus(LIMIT), context)),
                Err(error) => {
                    warn!(address = %left.address, %error, "peers hear nothing of a process's end");
                }
            }
        }
        self.ending.retain(|(until, context)| now < *until && context.cm_count() > 0);
    }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").field("variable", &self.variable()).finish_non_exhaustive()
    }
}

/// Tells the peers of connections at an address where nobody is left, by a device that is there as
/// long as they have not answered.
fn tell_peers(left: &Left) -> Result<Context, OpenError> {
    let Left { address, partitions, records } = left;
    info!(%address, connections = records.len(), "processes have ended");
    // repeated soon: it must not take long
    let cm = CmConfig { response_timeout: 15, ..CmConfig::default() };
    let options = OpenOptions { cm, ..OpenOptions::default() };
    // a partition that none of them had: answers are for those that they had
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
