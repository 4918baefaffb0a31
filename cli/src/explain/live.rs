use std::{
    io::{self, Read},
    process,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    growing::{Growing, LOOK, MOST, SHARE},
    report::Filter,
};
use crate::{failure::Failure, ladder::Ladder, output::outln};

const INTERRUPTED: i32 = 130;

pub(super) fn run(filter: &Filter) -> Result<(), Failure> {
    // The first Ctrl-C ends the pipe's writer; the conclusion follows.
    static IS_ASKED: AtomicBool = AtomicBool::new(false);
    ctrlc::set_handler(|| {
        if IS_ASKED.swap(true, Ordering::Relaxed) {
            process::exit(INTERRUPTED);
        }
    })
    .map_err(|error| error.to_string())?;
    let ladder = Ladder::on(&io::stdout());
    let chunks = read();
    let mut growing = Growing::default();
    let (mut pause, mut is_more) = (LOOK, true);
    while is_more {
        is_more = gather(&chunks, pause, &mut growing.bytes)?;
        let began = Instant::now();
        growing.draw(&ladder, filter, "").iter().for_each(|line| outln!("{line}"));
        if growing.bytes.len() >= MOST {
            outln!("{} MiB are drawn, the limit of --live; explain a file to see all", MOST >> 20);
            break;
        }
        pause = LOOK.max(began.elapsed() * SHARE);
    }
    let conclusion = growing.conclusion(&ladder, filter);
    let lines = conclusion
        .ok_or("standard input is neither pcap nor pcapng; pipe the output of `tcpdump -U -w -`")?;
    outln!("");
    outln!("{}", lines.join("\n"));
    Ok(())
}

fn read() -> Receiver<io::Result<Vec<u8>>> {
    // Beyond 16 chunks the pipe's writer waits.
    let (sender, chunks) = mpsc::sync_channel(16);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let piece = match input.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => Ok(buffer[..length].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = piece.is_err();
            if sender.send(piece).is_err() || is_last {
                return;
            }
        }
    });
    chunks
}

/// `false`: end of input.
fn gather(
    chunks: &Receiver<io::Result<Vec<u8>>>,
    time: Duration,
    bytes: &mut Vec<u8>,
) -> Result<bool, Failure> {
    let end = Instant::now() + time;
    loop {
        match chunks.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(piece) => {
                let read = piece.map_err(|error| format!("cannot read standard input: {error}"));
                bytes.extend(read?);
            }
            Err(RecvTimeoutError::Timeout) => return Ok(true),
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
        if bytes.len() >= MOST {
            return Ok(true);
        }
    }
}
