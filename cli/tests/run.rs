//! Mostly a file stands for the library. Its directory is open, so its names go into the user's
//! cache.

use std::{
    env, fs,
    io::pipe,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::process::Signal;

/// Other users can enter the first directory, and only this user can change the second.
struct Scratch(PathBuf, PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("roce-run-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        // In root's tests, other users may not enter the build directory.
        let safe =
            if rustix::process::geteuid().is_root() { "/run" } else { env!("CARGO_TARGET_TMPDIR") };
        let safe = Path::new(safe).join(path.file_name().unwrap());
        fs::create_dir(&safe).unwrap();
        fs::set_permissions(&safe, PermissionsExt::from_mode(0o755)).unwrap();
        fs::create_dir(path.join("open")).unwrap();
        fs::set_permissions(path.join("open"), PermissionsExt::from_mode(0o1777)).unwrap();
        fs::write(path.join("open/library"), b"\x7FELF").unwrap();
        Self(fs::canonicalize(path).unwrap(), fs::canonicalize(safe).unwrap())
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn runtime(&self) -> PathBuf {
        let path = self.join("runtime");
        let _ = fs::create_dir(&path);
        path
    }

    /// With a named library and a clean environment.
    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = self.run_by(Path::new(env!("CARGO_BIN_EXE_roce")), arguments);
        command.env("ROCE_LIBRARY", self.join("open/library"));
        command
    }

    fn run_by(&self, roce: &Path, arguments: &[&str]) -> Command {
        crate::watchdog::start(String::new);
        let mut command = Command::new(roce);
        for variable in [
            "ROCE_DEVICES",
            "ROCE_PCAP",
            "ROCE_EXPLAIN",
            "ROCE_CHECK",
            "ROCE_CHECK_SUPPRESSIONS",
            "ROCE_FAULT",
            "ROCE_FAULT_SEED",
            "ROCE_LIBRARY",
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "VIRTUAL_ENV",
            "CONDA_PREFIX",
            "PYTHONPATH",
        ] {
            command.env_remove(variable);
        }
        command
            .arg("run")
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.runtime())
            .env("XDG_CACHE_HOME", self.1.join("cache"))
            .current_dir(&self.0);
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_dir_all(&self.1);
    }
}

#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(output: &Output, status: i32) -> String {
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{output:?}");
    assert!(line.starts_with("roce: ") && line.lines().count() == 1, "{line}");
    line
}

#[test]
fn sockets_need_their_library_beside_the_other() {
    let scratch = Scratch::new("sockets");
    let run = || scratch.run(&["--sockets", "--", "env"]);
    let line = refused(&run().output().unwrap(), 2);
    assert!(line.contains("--sockets: ") && line.contains("open/librspreload.so"), "{line}");
    let preloaded = scratch.join("open/librspreload.so");
    fs::write(&preloaded, b"\x7FELF").unwrap();
    let output = run().env("LD_PRELOAD", "libanother.so").output().unwrap();
    let environment = String::from_utf8(output.stdout).unwrap();
    let expected = format!("{}:libanother.so", preloaded.display());
    assert_eq!(variable(&environment, "LD_PRELOAD"), Some(&*expected));
}

/// A wheel's copy of the library has another name, and its path may precede all variables.
#[test]
fn copies_that_wheels_bring_lead_to_the_library() {
    let scratch = Scratch::new("wheels");
    let copy = "libibverbs-1de1263b.so.1.14.48.0";
    let packages = scratch.join("venv/lib/python3.11/site-packages");
    for (libs, file) in
        [("nixl.libs", copy), ("nixl.libs", "libz-5.so.1"), ("other", "libibverbs-2.so")]
    {
        fs::create_dir_all(packages.join(libs)).unwrap();
        fs::write(packages.join(libs).join(file), "").unwrap();
    }
    let loaded = |command: &mut Command| {
        let output = command.env("HOME", scratch.join("home")).output().unwrap();
        assert!(output.status.success(), "{output:?}"); // the stand-in cannot be loaded
        let environment = String::from_utf8(output.stdout).unwrap();
        let links = PathBuf::from(variable(&environment, "LD_LIBRARY_PATH").unwrap());
        let names = variable(&environment, "LD_PRELOAD").map(str::to_owned);
        for name in names.iter().flat_map(|names| names.split(':')) {
            assert_eq!(fs::read_link(links.join(name)).unwrap(), scratch.join("open/library"));
        }
        names
    };
    assert_eq!(loaded(&mut scratch.run(&["--", "env"])), None);
    let active = &mut scratch.run(&["--", "env"]);
    assert_eq!(loaded(active.env("VIRTUAL_ENV", scratch.join("venv"))).as_deref(), Some(copy));
    let named = &mut scratch.run(&["--also", "librdmacm-7.so.1", "--also", copy, "--", "env"]);
    assert_eq!(loaded(named), Some(format!("{copy}:librdmacm-7.so.1")));
    // A program in the environment, or a script of its interpreter, needs no variable.
    fs::create_dir(scratch.join("venv/bin")).unwrap();
    let interpreter = scratch.join("venv/bin/python3");
    symlink("/bin/sh", &interpreter).unwrap();
    let program = &mut scratch.run(&["--", "venv/bin/python3", "-c", "env"]);
    assert_eq!(loaded(program).as_deref(), Some(copy));
    let script = scratch.join("script");
    fs::write(&script, format!("#!{}\nenv\n", interpreter.display())).unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(loaded(&mut scratch.run(&["--", "./script"])).as_deref(), Some(copy));
    let line = refused(&scratch.run(&["--also", "libc.so.6", "--", "env"]).output().unwrap(), 2);
    assert!(line.contains("--also: libc.so.6"), "{line}");
}

fn variable<'a>(environment: &'a str, name: &str) -> Option<&'a str> {
    environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn the_program_finds_the_library_by_every_name_and_reads_what_was_asked_for() {
    let scratch = Scratch::new("environment");
    let options = ["-d", "roce_lo", "--device", "udp:127.0.0.9", "--pcap", "x-%d.pcapng"];
    let faults = ["--fault", "drop 1%", "--fault", "rnr 10%; delay 2ms", "--seed", "7"];
    let sockets = ["--receive-buffer", "212992"];
    let arguments = [&options[..], &faults, &sockets, &["--", "env"]].concat();
    let environment = said(scratch.run(&arguments).env("LD_LIBRARY_PATH", "/opt/one::/opt/two"));
    assert_eq!(variable(&environment, "ROCE_DEVICES"), Some("roce_lo,udp:127.0.0.9"));
    assert_eq!(variable(&environment, "ROCE_PCAP"), scratch.join("x-%d.pcapng").to_str());
    assert_eq!(variable(&environment, "ROCE_FAULT"), Some("drop 1%, rnr 10%; delay 2ms"));
    assert_eq!(variable(&environment, "ROCE_FAULT_SEED"), Some("7"));
    assert_eq!(variable(&environment, "ROCE_RECEIVE_BUFFER"), Some("212992"));
    let path = variable(&environment, "LD_LIBRARY_PATH").unwrap();
    let own = PathBuf::from(path.strip_suffix(":/opt/one::/opt/two").unwrap());
    for name in ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"] {
        assert_eq!(fs::read_link(own.join(name)).unwrap(), scratch.join("open/library"));
    }
    let cache = scratch.1.join("cache/roce");
    assert_eq!(own.parent(), Some(&*cache));
    assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o022, 0);

    for (option, value) in [("--explain", "1"), ("--explain=json", "json")] {
        let environment = said(&mut scratch.run(&[option, "env"]));
        assert_eq!(variable(&environment, "ROCE_EXPLAIN"), Some(value), "{option}");
    }
    for (option, value) in [
        ("--check", "text"),
        ("--check=json", "json"),
        ("--check=reorder,seed=0x10,json", "json,reorder,seed=16"),
    ] {
        let file = scratch.join("suppressions");
        fs::write(&file, "timeout_zero\n").unwrap();
        let file = file.to_str().unwrap();
        let environment = said(&mut scratch.run(&[option, "--suppressions", file, "env"]));
        assert_eq!(variable(&environment, "ROCE_CHECK"), Some(value), "{option}");
        assert_eq!(variable(&environment, "ROCE_CHECK_SUPPRESSIONS"), Some(file), "{option}");
        let missing =
            scratch.run(&[option, "--suppressions", "/no/file", "true"]).output().unwrap();
        let text = String::from_utf8_lossy(&missing.stderr);
        let is_said = text.starts_with("roce: --suppressions: /no/file: No such file");
        assert!(missing.status.code() == Some(2) && is_said && text.lines().count() == 1, "{text}");
    }
    let text = refused(&scratch.run(&["--check=jsn", "true"]).output().unwrap(), 2);
    assert!(text.starts_with("roce: --check: unknown word \"jsn\"; expected text, json"), "{text}");
    let unknown = scratch.run(&["--explain=xml", "true"]).output().unwrap();
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(unknown.status.code() == Some(2) && text.contains("text, json"), "{text}");

    // Without options only the path is set, and nothing is made twice.
    let roce = env!("CARGO_BIN_EXE_roce");
    let environment = said(&mut scratch.run(&[roce, "run", "env"]));
    assert_eq!(variable(&environment, "LD_LIBRARY_PATH"), own.to_str());
    let set = [
        "ROCE_DEVICES",
        "ROCE_PCAP",
        "ROCE_FAULT",
        "ROCE_FAULT_SEED",
        "ROCE_RECEIVE_BUFFER",
        "ROCE_EXPLAIN",
        "ROCE_CHECK",
    ]
    .map(|name| variable(&environment, name));
    assert_eq!(set, [None; 7]);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
    // A file is found from any directory.
    let mut inherited = scratch.run(&["env"]);
    let environment = said(
        inherited.env("ROCE_DEVICES", "roce_lo").env("ROCE_FAULT", "drop 1%").env("ROCE_PCAP", "x"),
    );
    assert_eq!(variable(&environment, "ROCE_PCAP"), scratch.join("x").to_str());
    assert_eq!(
        (variable(&environment, "ROCE_DEVICES"), variable(&environment, "ROCE_FAULT")),
        (Some("roce_lo"), Some("drop 1%"))
    );
}

/// Its processes add to the file.
#[test]
fn a_file_of_findings_is_empty_at_the_start_of_the_program() {
    let scratch = Scratch::new("findings");
    for (name, left) in [("found.sarif", ""), ("found-%p.sarif", "of another run")] {
        let file = scratch.join(name);
        fs::write(&file, "of another run").unwrap();
        let option = format!("--check=sarif,file={}", file.display());
        let environment = said(&mut scratch.run(&[&*option, "env"]));
        assert_eq!(variable(&environment, "ROCE_CHECK"), option.strip_prefix("--check="));
        assert_eq!(fs::read_to_string(&file).unwrap(), left, "{name}");
    }
    let output = scratch.run(&["--check=file=/no/file", "true"]).output().unwrap();
    let line = refused(&output, 2);
    assert!(line.starts_with("roce: --check: /no/file: No such file"), "{line}");
}

#[test]
fn the_library_is_found_beside_the_tool_and_where_it_is_installed() {
    let scratch = Scratch::new("library");
    fs::create_dir_all(scratch.join("bin")).unwrap();
    fs::create_dir_all(scratch.join("lib/roce")).unwrap();
    let roce = scratch.join("bin/roce");
    // Another process copies: a child of a parallel test could inherit a writable descriptor
    // (ETXTBSY).
    assert!(
        Command::new("cp").arg(env!("CARGO_BIN_EXE_roce")).arg(&roce).status().unwrap().success()
    );
    let output = scratch.run_by(&roce, &["true"]).output().unwrap();
    assert!(refused(&output, 2).contains("there is no libroce_abi.so in"), "{output:?}");
    for place in ["lib/roce/libroce_abi.so", "bin/libroce_abi.so"] {
        fs::copy(env::current_exe().unwrap(), scratch.join(place)).unwrap();
        let path = said(
            &mut scratch.run_by(&roce, &["sh", "-c", "readlink $LD_LIBRARY_PATH/libibverbs.so.1"]),
        );
        assert_eq!(Path::new(path.trim_end()), scratch.join(place));
    }
    fs::write(scratch.join("bin/libroce_abi.so"), "a text").unwrap();
    let output = scratch.run_by(&roce, &["true"]).output().unwrap();
    assert!(
        refused(&output, 2).contains("bin/libroce_abi.so is not a shared object; see --library"),
        "{output:?}"
    );
}

#[test]
fn the_library_is_copied_with_its_names() {
    let scratch = Scratch::new("unpack");
    let unpack = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
        command.arg("unpack").args(arguments).env("XDG_CACHE_HOME", scratch.1.join("cache"));
        PathBuf::from(said(command.env("ROCE_LIBRARY", scratch.join("open/library"))).trim_end())
    };
    let links = unpack(&[]);
    let target = fs::read_link(links.join("libibverbs.so.1")).unwrap();
    assert_eq!(target, scratch.join("open/library"));
    let volume = scratch.join("open/volume/lib");
    for _ in 0..2 {
        assert_eq!(unpack(&[volume.to_str().unwrap()]), volume);
        for name in ["libibverbs", "librdmacm"] {
            linked_by_pkg_config(&volume, name);
        }
        for name in ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"] {
            assert_eq!(fs::read_link(volume.join(name)).unwrap(), Path::new("libroce_abi.so"));
        }
        assert_eq!(fs::read(volume.join("libroce_abi.so")).unwrap(), b"\x7FELF");
        assert_eq!(fs::read_dir(&volume).unwrap().count(), 6);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(["unpack", "/proc/nowhere"]).env("ROCE_LIBRARY", scratch.join("open/library"));
    assert!(refused(&command.output().unwrap(), 1).contains("cannot copy to /proc/nowhere: "));
}

fn linked_by_pkg_config(directory: &Path, name: &str) {
    let text = fs::read_to_string(directory.join(format!("pkgconfig/{name}.pc"))).unwrap();
    assert!(text.starts_with("libdir=${pcfiledir}/..\n"), "{text}");
    let mut command = Command::new("pkg-config");
    command.args(["--libs", name]).env("PKG_CONFIG_PATH", directory.join("pkgconfig"));
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let of = format!("-L{}/pkgconfig/.. -l{}", directory.display(), &name[3..]);
            assert_eq!(said.trim(), of, "{output:?}");
        }
        Err(_) => eprintln!("there is no pkg-config: it is left to CI"),
    }
}

#[test]
fn what_is_made_for_another_processor_is_refused() {
    let scratch = Scratch::new("machine");
    let foreign = scratch.join("foreign");
    let header = *b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x16\0"; // S/390
    fs::write(&foreign, header).unwrap();
    fs::set_permissions(&foreign, PermissionsExt::from_mode(0o755)).unwrap();
    let line = refused(&scratch.run(&["./foreign"]).output().unwrap(), 126);
    assert!(line.contains("./foreign is for another processor (ELF machine 22"), "{line}");
    let line = refused(&scratch.run(&["--library", "foreign", "true"]).output().unwrap(), 2);
    assert!(line.contains("the library foreign is for another processor"), "{line}");
}

/// glibc may be older than needed, or musl: minimal files here.
#[test]
fn a_program_with_another_c_library_is_refused() {
    let scratch = Scratch::new("glibc");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let source = "int old(void) { return 0; }\nint main(void) { return 0; }\n";
    fs::write(scratch.join("empty.c"), source).unwrap();
    let versions = "GLIBC_2.2.5 { old; };\nGLIBC_2.17 { main; } GLIBC_2.2.5;\n";
    fs::write(scratch.join("versions"), versions).unwrap();
    let compile = |options: &[&str]| {
        let mut command = Command::new(&compiler);
        command.current_dir(&scratch.0).args(options).arg("empty.c");
        command.status().map(|status| assert!(status.success(), "{options:?}"))
    };
    let names = "-Wl,--version-script=versions,-soname=libc.so.6";
    if compile(&["-shared", "-nostdlib", names, "-o", "libc.so.6"]).is_err() {
        eprintln!("there is no C compiler: it is left to CI");
        return;
    }
    let library = env::current_exe().unwrap().with_file_name("libroce_abi.so");
    for (linker, wanted) in [
        ("ld-2.17.so", "/libc.so.6, which lacks GLIBC_2."),
        ("ld-musl-x86_64.so.1", "./program is linked with musl, and the library needs glibc"),
    ] {
        fs::write(scratch.join(linker), "").unwrap();
        let linker = format!("-Wl,--dynamic-linker={}", scratch.join(linker).display());
        compile(&["-o", "program", &linker]).unwrap();
        let mut run = scratch.run(&["./program"]);
        let line = refused(&run.env("ROCE_LIBRARY", &library).output().unwrap(), 126);
        assert!(line.starts_with("roce: ./program ") && line.contains(wanted), "{line}");
    }
}

#[test]
fn the_program_takes_the_commands_place() {
    let scratch = Scratch::new("place");
    let child =
        scratch.run(&["sh", "-c", "echo $$"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id}\n"));
    assert_eq!(scratch.run(&["sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
    assert_eq!(scratch.run(&["sh", "-c", "kill -TERM $$"]).status().unwrap().signal(), Some(15));
    assert_eq!(said(&mut scratch.run(&["--", "echo", "-d", "--sysfs", "a b"])), "-d --sysfs a b\n");
}

#[test]
fn the_program_ends_when_nobody_reads_it() {
    let scratch = Scratch::new("pipe");
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let status = scratch.run(&["yes"]).stdout(writer).status().unwrap();
    assert_eq!(status.signal(), Some(Signal::PIPE.as_raw()));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let scratch = Scratch::new("errors");
    fs::write(scratch.join("text"), "a text").unwrap();
    fs::write(scratch.join("script"), "#!/no/such/shell\n").unwrap();
    fs::set_permissions(scratch.join("script"), PermissionsExt::from_mode(0o755)).unwrap();
    for (arguments, status, wanted) in [
        (
            &["-d", "eth77", "true"][..],
            2,
            "roce: --device: device eth77 does not exist; `roce devinfo` lists",
        ),
        (&["-d", "udp:10.1", "true"], 2, "roce: --device: 10.1 is not an IP address"),
        (
            &["--fault", "drp 1%", "true"],
            2,
            "roce: --fault: in the fault \"drp 1%\": unknown action \"drp\"; expected",
        ),
        (&["--fault", "drop 1% often", "true"], 2, "unknown word \"often\"; expected"),
        (&["--fault", "rnr 5% tx", "true"], 2, "rnr concerns received packets"),
        (
            &["--pcap", "/no/such/x.pcapng", "true"],
            2,
            "/no/such/x.pcapng is in a directory that does not exist",
        ),
        (&["--pcap", ".", "true"], 2, ". is a directory; name a file"),
        (&["--library", "text", "true"], 2, "the library text is not a shared object"),
        (&["--library", "none", "true"], 2, "the library none cannot be read: No such file"),
        (&["no-such-program"], 127, "no directory of PATH has a program no-such-program"),
        (&["./no-such-program"], 127, "there is no program ./no-such-program"),
        (&[""], 127, "no directory of PATH has a program "),
        (&["./text"], 126, "cannot execute ./text: it is no program; see `chmod +x`"),
        (&["/tmp"], 126, "cannot execute /tmp: it is a directory"),
        (&["./script"], 126, "cannot execute ./script: its interpreter is missing"),
    ] {
        let line = refused(&scratch.run(arguments).output().unwrap(), status);
        assert!(line.contains(wanted), "{arguments:?}: {line}");
    }
    for (name, value, wanted) in [
        ("ROCE_DEVICES", "eth77", "roce: ROCE_DEVICES: device eth77 does not exist"),
        ("ROCE_DEVICES", "roce_lo udp:10.0", "roce: ROCE_DEVICES: 10.0 is not an IP address"),
        ("ROCE_FAULT", "drop", "roce: ROCE_FAULT: in the fault \"drop\": no condition"),
        ("ROCE_RECEIVE_BUFFER", "4M", "roce: ROCE_RECEIVE_BUFFER: \"4M\" is not a number"),
        ("ROCE_SOURCE_PORTS", "-1", "roce: ROCE_SOURCE_PORTS: \"-1\" is not a number"),
        ("ROCE_SEGMENTS", "one", "roce: ROCE_SEGMENTS: \"one\" is not a number"),
        ("ROCE_SHARDS", "two", "roce: ROCE_SHARDS: \"two\" is not a number"),
        (
            "ROCE_WRITE_ONLY_PACKETS",
            "all",
            "roce: ROCE_WRITE_ONLY_PACKETS: \"all\" is not a number",
        ),
        ("ROCE_FAULT_SEED", "x", "roce: ROCE_FAULT_SEED: \"x\" is not a number from 0 to 2^64 - 1"),
    ] {
        let line = refused(&scratch.run(&["true"]).env(name, value).output().unwrap(), 2);
        assert!(line.starts_with(wanted), "{line}");
    }
}

#[test]
fn a_program_for_which_the_system_ignores_the_library_is_refused() {
    let scratch = Scratch::new("setuid");
    let program = if rustix::process::geteuid().is_root() {
        let program = scratch.join("setuid");
        fs::copy("/bin/true", &program).unwrap();
        chown(&program, Some(65534), None).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
        program
    } else {
        let is_setuid = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o4001 == 0o4001)
        };
        let known = ["/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount", "/bin/su", "/bin/mount"]
            .map(PathBuf::from);
        known.into_iter().find(is_setuid).expect("a setuid program on this system")
    };
    let line = refused(&scratch.run(&[program.to_str().unwrap()]).output().unwrap(), 126);
    assert!(line.contains("is setuid, so the system ignores LD_LIBRARY_PATH"), "{line}");
}

/// Others who can write a directory, now or after a cleanup, choose a program's library.
#[test]
fn what_others_have_put_into_the_way_is_not_used() {
    let scratch = Scratch::new("hostile");
    let list = |command: &mut Command| PathBuf::from(said(command).trim_end());
    let print = ["sh", "-c", "echo $LD_LIBRARY_PATH"];
    let refused_in = |cache: &Path, by: &Path| {
        let output = scratch.run(&print).env("XDG_CACHE_HOME", cache).output().unwrap();
        let line = refused(&output, 2);
        let wanted = format!("other users can write to {}; set XDG_CACHE_HOME to a", by.display());
        assert!(line.contains(&wanted), "{line}");
    };
    // below a sticky directory
    let sticky = scratch.join("open");
    refused_in(&sticky.join("cache"), &sticky);
    refused_in(Path::new("/dev/shm/roce-no-such-directory"), Path::new("/dev/shm"));
    assert!(!sticky.join("cache").exists());
    // through a link
    let link = scratch.1.join("link");
    symlink(&sticky, &link).unwrap();
    refused_in(&link, &sticky);
    let open = scratch.1.join("open");
    fs::create_dir_all(open.join("cache")).unwrap();
    fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    refused_in(&open.join("cache"), &open);

    // A wrong link is corrected; a directory that others can change is refused.
    let own = list(&mut scratch.run(&print));
    fs::remove_file(own.join("libibverbs.so.1")).unwrap();
    symlink("/no/such/library", own.join("libibverbs.so.1")).unwrap();
    said(&mut scratch.run(&["true"]));
    assert_eq!(fs::read_link(own.join("libibverbs.so.1")).unwrap(), scratch.join("open/library"));
    fs::set_permissions(&own, PermissionsExt::from_mode(0o777)).unwrap();
    refused_in(&scratch.1.join("cache"), &own);

    // The default is the home's cache.
    let mut command = scratch.run(&print);
    let home = list(command.env_remove("XDG_CACHE_HOME").env("HOME", &scratch.1));
    assert_eq!(home.parent(), Some(&*scratch.1.join(".cache/roce")));
    let mut command = scratch.run(&print);
    let output = command.env_remove("XDG_CACHE_HOME").env_remove("HOME").output().unwrap();
    assert!(refused(&output, 2).contains("set XDG_CACHE_HOME to a directory that you own"));
}

#[test]
fn names_stand_beside_a_library_that_nobody_else_can_change() {
    let scratch = Scratch::new("beside");
    let library = scratch.1.join("library");
    fs::write(&library, b"\x7FELF").unwrap();
    let list = || {
        let mut command = scratch.run(&["sh", "-c", "echo $LD_LIBRARY_PATH"]);
        PathBuf::from(said(command.env("ROCE_LIBRARY", &library)).trim_end())
    };
    let beside = scratch.1.join("library.links");
    assert_eq!(list(), beside);
    assert_eq!(fs::read_link(beside.join("librdmacm.so.1")).unwrap(), library);
    assert!(!scratch.1.join("cache").exists() && !scratch.runtime().join("roce").exists());
    for open in [&beside, &scratch.1] {
        fs::set_permissions(open, PermissionsExt::from_mode(0o777)).unwrap();
        let mut command = scratch.run(&["sh", "-c", "echo $LD_LIBRARY_PATH"]);
        command.env("ROCE_LIBRARY", &library);
        // refused if the cache is in the same place
        assert_eq!(command.output().unwrap().status.success(), open == &beside);
    }
    fs::set_permissions(&scratch.1, PermissionsExt::from_mode(0o755)).unwrap();
    assert!(list().starts_with(scratch.1.join("cache")), "others can change the first");
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can give a directory to another user: left to CI");
        return;
    }
    let scratch = Scratch::new("another");
    let others = scratch.1.join("others");
    fs::create_dir(&others).unwrap();
    chown(&others, Some(65534), None).unwrap();
    let output = scratch.run(&["true"]).env("XDG_CACHE_HOME", &others).output().unwrap();
    let line = refused(&output, 2);
    assert!(line.contains(&format!("other users can write to {}", others.display())), "{line}");
}

fn has_namespaces(user: &[&str]) -> bool {
    let mut command = Command::new("setpriv");
    let possible = command
        .args(user)
        .args(["unshare", "--user", "--map-root-user", "--mount", "true"])
        .output();
    let possible = possible.is_ok_and(|output| output.status.success());
    assert!(possible || env::var_os("ROCE_NAMESPACES").is_none(), "no mount namespace can be made");
    possible
}

#[test]
fn counters_of_devices_go_on() {
    if !has_namespaces(&["--nnp"]) {
        eprintln!("no mount namespace can be made here: it is left to CI");
        return;
    }
    let scratch = Scratch::new("counters");
    let device = "udp:127.79.31.1";
    let perf =
        format!("{} perf write --local -n 100 -s 4096 -d {device}", env!("CARGO_BIN_EXE_roce"));
    let port = format!("/sys/class/infiniband/{device}/ports/1");
    let show = "cat counters/port_xmit_data counters/port_xmit_packets hw_counters/rx_write_requests \
                hw_counters/rdma_sends";
    let script = format!("cd {port}; {show}; {perf} > /dev/null; {perf} > /dev/null; {show}");
    let text = said(&mut scratch.run(&["--sysfs", "-d", device, "--", "sh", "-euc", &script]));
    let numbers: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let [data, packets, writes, sends] = numbers[4..] else { panic!("{text}") };
    assert_eq!(numbers[..4], [0; 4]);
    assert_eq!((writes, sends), (200, 0), "of both runs");
    assert!(data >= 200 * 4096 / 4 && packets >= 200, "{text}");
}

/// As UCX, NCCL and pyverbs' tests look for devices; root also without privilege.
#[test]
fn devices_are_shown_where_the_kernel_shows_them() {
    const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let scratch = Scratch::new("sysfs");
    let roce = scratch.join("roce");
    fs::copy(env!("CARGO_BIN_EXE_roce"), &roce).unwrap();
    fs::write(scratch.join("libroce_abi.so"), b"\x7FELF").unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let users = [&["--nnp"][..], &NOBODY];
    for user in users.into_iter().take(1 + usize::from(is_root)) {
        if !has_namespaces(user) {
            eprintln!("no mount namespace can be made here: it is left to CI");
            return;
        }
        let runtime = scratch.join(&format!("runtime{}", user.len()));
        let cache = scratch.1.join(format!("cache{}", user.len()));
        for own in [&runtime, &cache] {
            fs::create_dir(own).unwrap();
            if user.len() == NOBODY.len() {
                chown(own, Some(65534), Some(65534)).unwrap();
            }
        }
        let look = |devices: &[&str], script: &str| {
            let mut command = Command::new("setpriv");
            command
                .args(user)
                .arg(&roce)
                .args(["run", "--sysfs"])
                .args(devices)
                .args(["--", "sh", "-euc", script]);
            said(
                command
                    .env("XDG_RUNTIME_DIR", &runtime)
                    .env("XDG_CACHE_HOME", &cache)
                    .env_remove("ROCE_DEVICES")
                    .current_dir(&scratch.0),
            )
        };
        let two = ["-d", "udp:127.0.0.9", "-d", "roce_lo"];
        assert_eq!(look(&two, "ls /sys/class/infiniband"), "roce_lo\nudp:127.0.0.9\n");
        let script = "cd /sys/class/infiniband_verbs; cat uverbs0/ibdev uverbs1/ibdev; cat uverbs0/device/vendor";
        assert_eq!(look(&two, script), "udp:127.0.0.9\nroce_lo\n0xffffff\n");
        let script = "stat -c %F /dev/infiniband/uverbs[01]; exec 3<>/dev/infiniband/uverbs0; test -r /dev/infiniband/uverbs1; \
                      test -w /dev/infiniband/uverbs1; ls /dev/infiniband";
        assert_eq!(
            look(&two, script),
            "character special file\ncharacter special file\nuverbs0\nuverbs1\n"
        );
        let script = "cd /sys/class/infiniband/udp:127.0.0.9/ports/1; cat gids/0 gids/1 gids/255 gid_attrs/types/0 gid_attrs/ndevs/0 \
                      pkeys/0 state link_layer; ls ../../device/net; cat ../../device/net/lo/ifindex";
        let none = "0000:0000:0000:0000:0000:0000:0000:0000\n";
        let gids = "0000:0000:0000:0000:0000:ffff:7f00:0009\n";
        assert_eq!(
            look(&two, script),
            gids.repeat(2) + none + "RoCE v2\nlo\n0xffff\n4: ACTIVE\nEthernet\nlo\n1\n"
        );

        // directory contents, user, network and processes stay
        let rest = "ls /dev /sys/class | grep -v infiniband; stat -c '%i %F %t %T' /dev/shm /dev/pts /dev/null /sys/class/net; \
                    readlink /dev/fd; cat /sys/class/net/lo/mtu; id -ru; id -rg; readlink /proc/self/ns/net /proc/self/ns/pid; \
                    head -c 1 /dev/urandom | wc -c; echo > /dev/null; pwd";
        let outside = Command::new("setpriv")
            .args(user)
            .args(["sh", "-euc", rest])
            .current_dir(&scratch.0)
            .output()
            .unwrap();
        assert_eq!(look(&[], rest), String::from_utf8(outside.stdout).unwrap());
        let program = roce.to_str().unwrap();
        assert_eq!(
            look(
                &two,
                &format!("{program} run --sysfs -d lo -- ls /sys/class/infiniband /dev/infiniband")
            )
            .lines()
            .count(),
            5
        );
    }
    assert!(
        !Path::new("/dev/infiniband/uverbs1").exists()
            && !Path::new("/sys/class/infiniband/roce_lo").exists()
    );
}
