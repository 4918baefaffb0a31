//! Syscall filters stand for other kernels and sandboxes, network namespaces for other addresses.

use std::{
    env, fs, io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use libc::{c_int, c_long};

const ROCE: &str = env!("CARGO_BIN_EXE_roce");
/// Per program.
const LIMIT: Duration = Duration::from_secs(60);
const NEW_NAMESPACES: u32 = 0x7E02_0000;

#[derive(Clone, Copy)]
enum Refused {
    /// Always.
    Call(c_long, c_int),
    /// With this value of an argument, from 0.
    With(c_long, [(usize, c_int); 1], c_int),
    /// With these values of two arguments.
    WithBoth(c_long, [(usize, c_int); 2], c_int),
    /// With one of these bits in the first argument.
    WithBits(c_long, u32, c_int),
}

impl Refused {
    const fn option(level: c_int, number: c_int) -> Self {
        Self::WithBoth(libc::SYS_setsockopt, [(1, level), (2, number)], libc::ENOPROTOOPT)
    }

    const fn family(family: c_int) -> Self {
        Self::With(libc::SYS_socket, [(0, family)], libc::EAFNOSUPPORT)
    }

    fn filter(self) -> Vec<libc::sock_filter> {
        let (load, equals) = (
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        );
        let has_bits = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
        let (call, conditions, error): (_, &[(usize, u32, u32)], _) = match self {
            Self::Call(call, error) => (call, &[], error),
            Self::With(call, [(argument, value)], error) => {
                (call, &[(argument, equals, value.cast_unsigned())], error)
            }
            Self::WithBoth(call, [(first, one), (second, other)], error) => (
                call,
                &[(first, equals, one.cast_unsigned()), (second, equals, other.cast_unsigned())],
                error,
            ),
            Self::WithBits(call, bits, error) => (call, &[(0, has_bits, bits)], error),
        };
        let instruction =
            |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
        // A failed comparison jumps to the last instruction.
        let all = 2 * (1 + conditions.len()) + 1;
        // the syscall number
        let mut filter = vec![instruction(load, 0, 0, 0)];
        filter.push(instruction(equals, call as u32, 0, (all - 2) as u8));
        for &(argument, comparison, value) in conditions {
            filter.push(instruction(load, 16 + 8 * argument as u32, 0, 0));
            let to_end = (all - 1 - filter.len()) as u8;
            filter.push(instruction(comparison, value, 0, to_end));
        }
        let refuse = libc::SECCOMP_RET_ERRNO | error.cast_unsigned();
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, refuse, 0, 0));
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
        filter
    }
}

fn refuse(command: &mut Command, refused: &[Refused]) {
    let mut filters: Vec<_> = refused.iter().map(|refused| refused.filter()).collect();
    let install = move || {
        for filter in &mut filters {
            let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: the filter and its length are true, and the kernel copies it
            let results = unsafe {
                [
                    libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
                ]
            };
            if results != [0, 0] {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: system calls between `fork` and `exec`, on its own memory only
    unsafe { command.pre_exec(install) };
}

/// With its own directory for published files and a clean environment.
fn command(program: &str, arguments: &[&str]) -> Command {
    crate::watchdog::start(String::new);
    let mut command = Command::new(program);
    for variable in ["ROCE_DEVICES", "ROCE_LOG", "ROCE_SOCKETS_ONLY", "ROCE_SEGMENTS"] {
        command.env_remove(variable);
    }
    command.args(arguments).env("XDG_RUNTIME_DIR", runtime()).stdin(Stdio::null());
    command
}

fn runtime() -> PathBuf {
    let directory = env::temp_dir().join(format!("roce-sandbox-{}", std::process::id()));
    let _ = fs::create_dir(&directory);
    directory
}

fn done(command: &mut Command) -> Output {
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    crate::watchdog::programs::wait_with_output(running, LIMIT)
}

#[track_caller]
fn lines_of(command: &mut Command) -> Vec<String> {
    let output = done(command);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap().lines().map(str::to_owned).collect()
}

#[track_caller]
fn failed(command: &mut Command) -> String {
    let output = done(command);
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!output.status.success() && line.lines().count() == 1, "{output:?}");
    assert!(line.starts_with("roce: "), "{line}");
    line
}

fn perf(device: &str) -> Command {
    command(ROCE, &["perf", "write", "--local", "-n", "50", "-s", "8192", "-d", device])
}

/// A complete system prints nothing.
#[test]
fn an_option_of_sockets_that_is_refused_is_named_and_done_without() {
    const SOCKET: c_int = libc::SOL_SOCKET;
    let v4 = [
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, "IP_MTU_DISCOVER"),
        (libc::IPPROTO_IP, libc::IP_RECVTOS, "IP_RECVTOS"),
        (libc::IPPROTO_IP, libc::IP_RECVTTL, "IP_RECVTTL"),
        (libc::IPPROTO_IP, libc::IP_MULTICAST_IF, "IP_MULTICAST_IF"),
        (libc::SOL_UDP, libc::UDP_GRO, "UDP_GRO"),
        (libc::SOL_UDP, libc::UDP_SEGMENT, "UDP_SEGMENT"),
        (SOCKET, libc::SO_RXQ_OVFL, "SO_RXQ_OVFL"),
        (SOCKET, libc::SO_RCVBUF, "SO_RCVBUF"),
        (SOCKET, libc::SO_SNDBUF, "SO_SNDBUF"),
    ];
    let v6 = [
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, "IPV6_MTU_DISCOVER"),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, "IPV6_RECVTCLASS"),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, "IPV6_RECVHOPLIMIT"),
        (libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, "UDP_NO_CHECK6_RX"),
    ];
    for (device, sockets_only, options) in
        [("roce_lo", "0", &v4[..]), ("roce_lo", "1", &v4), ("udp:::1", "0", &v6)]
    {
        let run = |refused: &[Refused]| {
            let mut perf = perf(device);
            refuse(&mut perf, refused);
            lines_of(perf.env("ROCE_SOCKETS_ONLY", sockets_only))
        };
        assert_eq!(run(&[]), [""; 0]);
        for &(level, number, name) in options {
            let lines = run(&[Refused::option(level, number)]);
            let start = format!("roce: the system refuses {name} (");
            assert!(lines.len() == 1 && lines[0].starts_with(&start), "{name}: {lines:?}");
        }
    }
}

#[test]
fn an_option_of_sockets_that_is_needed_is_named() {
    let mut perf = perf("udp:::1");
    refuse(&mut perf, &[Refused::option(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)]);
    let line = failed(&mut perf);
    assert!(line.contains("UDP port 4791 on ::1: the system refuses IPV6_V6ONLY: "), "{line}");
}

/// Like gVisor: no segmentation, path MTU or interface events.
#[test]
fn a_kernel_without_segmentation_carries_packets_one_by_one() {
    let refused = [
        Refused::option(libc::SOL_UDP, libc::UDP_SEGMENT),
        Refused::option(libc::SOL_UDP, libc::UDP_GRO),
        Refused::option(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        Refused::family(libc::AF_NETLINK),
    ];
    for sockets_only in ["0", "1"] {
        let mut perf = perf("roce_lo");
        refuse(&mut perf, &refused);
        let lines = lines_of(perf.env("ROCE_SOCKETS_ONLY", sockets_only));
        assert_eq!(lines.len(), 3, "{lines:?}");
    }
}

/// Docker's default profile without capabilities.
#[test]
fn nothing_is_missing_in_a_container_with_the_usual_profile() {
    let mut refused = vec![
        Refused::Call(libc::SYS_clone3, libc::ENOSYS),
        Refused::WithBits(libc::SYS_clone, NEW_NAMESPACES, libc::EPERM),
        Refused::With(libc::SYS_socket, [(0, libc::AF_VSOCK)], libc::EPERM),
    ];
    refused.extend(
        [
            libc::SYS_acct,
            libc::SYS_add_key,
            libc::SYS_bpf,
            libc::SYS_fanotify_init,
            libc::SYS_fsopen,
            libc::SYS_get_mempolicy,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_io_uring_setup,
            libc::SYS_kcmp,
            libc::SYS_keyctl,
            libc::SYS_mbind,
            libc::SYS_mount,
            libc::SYS_move_pages,
            libc::SYS_open_by_handle_at,
            libc::SYS_open_tree,
            libc::SYS_perf_event_open,
            libc::SYS_pidfd_getfd,
            libc::SYS_pivot_root,
            libc::SYS_process_madvise,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_ptrace,
            libc::SYS_quotactl,
            libc::SYS_request_key,
            libc::SYS_set_mempolicy,
            libc::SYS_setns,
            libc::SYS_syslog,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_userfaultfd,
        ]
        .map(|call| Refused::Call(call, libc::EPERM)),
    );
    for mut command in [
        perf("udp:127.79.41.1"),
        perf("roce_lo"),
        command(ROCE, &["perf", "atomic", "--lat", "--local", "-n", "50"]),
        command(ROCE, &["devinfo"]),
    ] {
        refuse(&mut command, &refused);
        assert_eq!(lines_of(&mut command), [""; 0]);
    }
}

#[test]
fn files_of_devices_need_a_namespace_and_say_so() {
    let library = runtime().join("library");
    fs::write(&library, b"\x7FELF").unwrap();
    let mut run = command(ROCE, &["run", "--sysfs", "true"]);
    run.env("ROCE_LIBRARY", &library).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    refuse(&mut run, &[Refused::Call(libc::SYS_unshare, libc::EPERM)]);
    let line = failed(&mut run);
    for word in ["--sysfs needs a mount namespace", "unshare: ", "do without --sysfs"] {
        assert!(line.contains(word), "{line}");
    }
}

/// In a network namespace with all rights; `None`: forbidden.
fn in_network(script: &str) -> Option<Command> {
    let unshared = |script: &str| {
        command("unshare", &["--map-root-user", "--net", "sh", "-euc", script, ROCE])
    };
    let possible = unshared("ip link show lo").output();
    if possible.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(unshared(script));
    }
    assert!(env::var_os("ROCE_NAMESPACES").is_none(), "no namespace can be made: {possible:?}");
    eprintln!("no network namespace can be made here: it is left to CI");
    None
}

#[test]
fn loopback_that_is_down_is_named() {
    for command in [
        "$0 perf write --local",
        "$0 pingpong rc 127.0.0.1",
        "ip link set lo up; ip link set lo down; exec $0 perf write --local -d lo",
    ] {
        let Some(mut script) = in_network(command) else { return };
        let line = failed(&mut script);
        assert!(line.contains("`ip link set lo up` starts"), "{line}");
    }
}

/// A sandbox may have 127.0.0.1 only: programs share it, unless they want sockets only.
#[test]
fn the_only_address_of_loopback_is_shared() {
    const ONE_ADDRESS: &str = "
        ip link set lo up
        ip address add 127.0.0.1/32 dev lo
        ip address delete 127.0.0.1/8 dev lo
        perf=\"$0 perf write --local -n 50 -s 8192\"
        $perf
        $0 pingpong rc -n 100 &
        until $0 pingpong rc -n 100 127.0.0.1 2> /dev/null; do sleep 0.05; done
        wait $!
        ! ROCE_SOCKETS_ONLY=1 $perf -d roce_lo";
    let Some(mut script) = in_network(ONE_ADDRESS) else { return };
    let lines = lines_of(&mut script);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let words =
        "port 4791 on 127.0.0.1 is taken, by rdma_rxe or another roce device, and 127.0.0.2 is not";
    assert!(line.contains(words), "{line}");
}

#[test]
fn a_device_has_its_ipv4_addresses_where_ipv6_is_refused() {
    let script = "
        ip link set lo up
        ip link add roce-sandbox0 type veth peer name roce-sandbox1
        ip address add 10.79.42.1/24 dev roce-sandbox0
        ip address add fd00:79::1/64 dev roce-sandbox0 nodad
        ip link set roce-sandbox0 up
        exec $0 perf write --local -n 50 -s 8192 -d roce_roce-sandbox0";
    let Some(mut script) = in_network(script) else { return };
    refuse(&mut script, &[Refused::family(libc::AF_INET6)]);
    let lines = lines_of(&mut script);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let words = "the system refuses IPv6 sockets (Address family not supported";
    assert!(line.contains(words), "{line}");
}
