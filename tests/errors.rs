//! Failing system calls, before or after a device is opened. Messages may be lost; nothing panics
//! or hangs. Seccomp filters stay, so each case has its own process.

use std::{
    env, io, panic,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use libc::c_long;
use roce::{Access, Device, OpenOptions, QpInitAttr, SendWr, transport::qp::QpType};

const CASE: &str = "ROCE_TEST_ERROR";

const CASES: [(&str, c_long, i32); 21] = [
    ("socket", libc::SYS_socket, libc::EMFILE),
    ("bind", libc::SYS_bind, libc::ENOMEM),
    ("setsockopt", libc::SYS_setsockopt, libc::ENOBUFS),
    ("getsockname", libc::SYS_getsockname, libc::ENOBUFS),
    ("epoll_create1", libc::SYS_epoll_create1, libc::EMFILE),
    ("epoll_ctl", libc::SYS_epoll_ctl, libc::ENOMEM),
    ("epoll_pwait", libc::SYS_epoll_pwait, libc::ENOMEM),
    ("ppoll", libc::SYS_ppoll, libc::ENOMEM),
    ("eventfd2", libc::SYS_eventfd2, libc::EMFILE),
    ("memfd_create", libc::SYS_memfd_create, libc::EMFILE),
    ("ftruncate", libc::SYS_ftruncate, libc::ENOMEM),
    ("fcntl", libc::SYS_fcntl, libc::EMFILE),
    ("openat", libc::SYS_openat, libc::EMFILE),
    ("connect", libc::SYS_connect, libc::ENOMEM),
    ("accept4", libc::SYS_accept4, libc::EMFILE),
    ("sendto", libc::SYS_sendto, libc::ENOBUFS),
    ("sendmsg", libc::SYS_sendmsg, libc::ENOBUFS),
    ("recvmsg", libc::SYS_recvmsg, libc::ENOMEM),
    ("sendmmsg", libc::SYS_sendmmsg, libc::ENOBUFS),
    ("recvmmsg", libc::SYS_recvmmsg, libc::ENOMEM),
    ("clone3", libc::SYS_clone3, libc::EAGAIN),
];

const PATIENCE: Duration = Duration::from_millis(300);

/// Fails in every thread, as in a sandbox.
pub(crate) fn fail(call: c_long, error: i32) -> io::Result<()> {
    let instruction =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // the syscall number
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the filter and its length are true, and the kernel copies it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) == 0
    };
    if set { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn try_all(call: c_long, error: i32, open_first: bool, sockets_only: bool) {
    if !open_first {
        fail(call, error).unwrap();
    }
    let open = |name: &str| {
        let options = OpenOptions { sockets_only, ..OpenOptions::default() };
        Device::named(name).and_then(|device| device.open(options))
    };
    let (Ok(a), Ok(b)) = (open("udp:127.0.0.201"), open("udp:127.0.0.202")) else {
        return assert!(!open_first, "it did not open without any error");
    };
    let needed = [libc::SYS_socket, libc::SYS_bind, libc::SYS_epoll_create1, libc::SYS_eventfd2];
    assert!(open_first || !needed.contains(&call), "it opens without what it needs");
    if open_first {
        fail(call, error).unwrap();
    }
    let message = || -> Result<(), Box<dyn std::error::Error>> {
        let side = |context: &roce::Context| -> Result<_, Box<dyn std::error::Error>> {
            let cq = context.create_cq(16, None)?;
            let pd = context.alloc_pd()?;
            let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
            Ok((pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?, cq, region))
        };
        let (from, to) = (side(&a)?, side(&b)?);
        from.0.connect_to(to.0.endpoint(0).ok_or("no address")?)?;
        to.0.connect_to(from.0.endpoint(0).ok_or("no address")?)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            from.0.post_send(&[SendWr::write(1, to.2.remote(0), from.2.sge(0..4096))])?;
            while from.1.poll_one().is_none() && start.elapsed() < PATIENCE {
                let _ = to.1.poll_one();
            }
        }
        Ok(())
    };
    let _ = message(); // perhaps lost, or an object unavailable
    if call == libc::SYS_recvmmsg && sockets_only {
        assert!(b.link_counters().receive_errors > 0, "the filter has no effect");
    }
}

fn child(case: &str) {
    let [name, open_first, sockets_only] = case.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{case}")
    };
    // for panics of library threads
    panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        std::process::abort();
    }));
    let (_, call, error) = CASES.into_iter().find(|case| case.0 == name).unwrap();
    try_all(call, error, open_first == "true", sockets_only == "true");
    std::process::exit(0); // returning from the test would need the call
}

#[test]
fn an_error_of_any_system_call_is_survived() {
    if let Ok(case) = env::var(CASE) {
        return child(&case);
    }
    let test = crate::own_test::named("errors::an_error_of_any_system_call_is_survived");
    let mut failed = Vec::new();
    for (name, ..) in CASES {
        for (open_first, sockets_only) in [(false, false), (true, false), (true, true)] {
            let case = format!("{name} {open_first} {sockets_only}");
            let mut command = Command::new("timeout");
            command.arg("20").arg(env::current_exe().unwrap());
            command.args(["--exact", test, "--nocapture"]);
            let done = command.env(CASE, &case).stdout(Stdio::null()).output().unwrap();
            if !done.status.success() {
                failed.push(format!(
                    "{case}: {}\n{}",
                    done.status,
                    String::from_utf8_lossy(&done.stderr)
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
