use std::{sync::mpsc, thread, time::Duration};

use roce_provider::signals;

/// Runs `act` for up to `limit`: a signal handler may call `exit` while this thread holds a lock.
pub(crate) fn do_within(limit: Duration, act: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let end = move || {
        act();
        let _ = done.send(()); // fails after the limit
    };
    let started = signals::blocked(|| thread::Builder::new().name("roce exit".into()).spawn(end));
    if started.is_ok() {
        let _ = wait.recv_timeout(limit);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_is_waited_for_but_not_for_ever() {
        let (said, heard) = mpsc::channel();
        let say = said.clone();
        do_within(Duration::from_secs(60), move || say.send("done").unwrap());
        assert_eq!(heard.try_recv(), Ok("done"));

        let (release, held) = mpsc::channel::<()>();
        let began = Instant::now();
        do_within(Duration::from_millis(1), move || {
            let _ = held.recv();
            said.send("late").unwrap();
        });
        assert!(heard.try_recv().is_err() && began.elapsed() >= Duration::from_millis(1));
        drop(release);
        assert_eq!(heard.recv(), Ok("late"));
    }
}
