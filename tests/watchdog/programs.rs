use std::{
    fs,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use super::say;

/// After `limit` it shows and kills the program, and panics.
#[allow(dead_code, reason = "not all tests start programs")]
pub(crate) fn wait_with_output(child: Child, limit: Duration) -> Output {
    let number = child.id() as i32;
    let (ended, has_ended) = mpsc::channel::<()>();
    let timer = thread::spawn(move || {
        let hangs = has_ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
        if hangs {
            say(&format!("watchdog: a program has run for {} s", limit.as_secs()));
            let mut found = descendants(number);
            found.insert(0, number);
            end(&found);
        }
        hangs
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    assert!(!timer.join().unwrap(), "a program does not end: {output:?}");
    output
}

/// Shows and kills all descendants of this process.
pub(super) fn end_all() {
    end(&descendants(std::process::id() as i32));
}

fn end(programs: &[i32]) {
    programs.iter().for_each(|&number| show(number));
    for &number in programs {
        // SAFETY: numbers only; the descendant was unreaped a moment ago
        unsafe { libc::kill(number, libc::SIGKILL) };
    }
}

/// System calls, stacks if gdb is installed, and device counters.
fn show(number: i32) {
    let line = about(number, "cmdline").replace('\0', " ");
    say(&format!("process {number}: {}", line.trim_end()));
    let tasks = fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten();
    for task in tasks.filter_map(|task| task.file_name().into_string().ok()) {
        let about = |file| about(number, &format!("task/{task}/{file}")).trim_end().to_owned();
        let (name, state) = (about("comm"), about("stat"));
        let state = state.rsplit_once(')').and_then(|(_, fields)| fields.trim().chars().next());
        let state = state.unwrap_or('?');
        let (channel, call) = (about("wchan"), about("syscall"));
        say(&format!("  thread {task} {name}: {state} {channel} system call {call}"));
    }
    let gdb = Command::new("timeout")
        .args(["30", "gdb", "-p", &number.to_string(), "-batch", "-nx", "-ex"])
        .arg("thread apply all backtrace")
        .stdin(Stdio::null())
        .output();
    if let Ok(gdb) = gdb {
        say(&String::from_utf8_lossy(&gdb.stdout));
    }
    let environment = about(number, "environ");
    let directory = environment.split('\0').find_map(|line| line.strip_prefix("XDG_RUNTIME_DIR="));
    let files = directory.and_then(|directory| fs::read_dir(format!("{directory}/roce")).ok());
    for file in files.into_iter().flatten().flatten() {
        let counters = fs::read_to_string(file.path()).unwrap_or_default();
        say(&format!("  {}: {counters}", file.path().display()));
    }
}

fn descendants(of: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(i32, i32)> =
        numbers.filter_map(|number| Some((number, parent(number)?))).collect();
    let mut found = vec![of];
    let mut looked_at = 0;
    while let Some(&number) = found.get(looked_at) {
        looked_at += 1;
        found
            .extend(parents.iter().filter(|(_, parent)| *parent == number).map(|(child, _)| child));
    }
    found.split_off(1)
}

fn parent(number: i32) -> Option<i32> {
    let stat = about(number, "stat");
    let (_, fields) = stat.rsplit_once(')')?; // the name may hold anything
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Empty if it has ended.
fn about(number: i32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
