use std::{
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);

fn roce(arguments: &[&str]) -> Command {
    crate::watchdog::start(String::new);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn end(child: Child) -> Output {
    crate::watchdog::programs::wait_with_output(child, PATIENCE)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Retries the client until the server listens.
fn play(server: &[&str], client: &[&str]) -> (String, String) {
    let mut server = roce(server).spawn().unwrap();
    let start = Instant::now();
    let client = loop {
        let output = end(roce(client).spawn().unwrap());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            break output;
        }
        let absent =
            error.contains("start the server there first") || error.contains("does not respond");
        if !absent || start.elapsed() > PATIENCE {
            sleep(Duration::from_secs(1)); // it may be about to print why
            let _ = server.kill();
            panic!("client: {error}server: {:?}", server.wait_with_output().unwrap());
        }
        sleep(Duration::from_millis(20));
    };
    let server = end(server);
    assert!(server.status.success(), "{server:?}");
    (said(&server), said(&client))
}

#[test]
fn rping_validates_what_the_server_has_read_and_written_back() {
    for own_qp in [&[][..], &["-q"]] {
        let server = ["rping", "-s", "-v", "-S", "9000", "--device", "udp:127.79.1.1"];
        let client = [
            "rping",
            "-c",
            "-a",
            "127.79.1.1",
            "-C",
            "3",
            "-v",
            "-V",
            "-S",
            "9000",
            "--device",
            "udp:127.79.1.2",
        ];
        let (server, client) =
            play(&[&server[..], own_qp].concat(), &[&client[..], own_qp].concat());
        let by_server: Vec<_> =
            server.lines().filter_map(|line| line.strip_prefix("server ")).collect();
        let by_client: Vec<_> = client.lines().collect();
        assert_eq!((by_server.len(), &by_server), (3, &by_client));
        assert!(
            by_client[2].starts_with("ping data: rdma-ping-2: CDEF") && by_client[2].len() > 8_900
        );
    }
}

#[test]
fn ucmatose_makes_many_connections_and_ends_them() {
    let common = ["-c", "50", "-C", "4", "-S", "3000", "-m"];
    let server = [&["ucmatose", "--device", "udp:127.79.2.1"][..], &common].concat();
    let client =
        [&["ucmatose", "-s", "127.79.2.1", "--device", "udp:127.79.2.2"][..], &common].concat();
    let (server, client) = play(&server, &client);
    for text in [server, client] {
        assert!(
            text.contains("50 connections in ") && text.contains("migrating to new event channel"),
            "{text}"
        );
        assert!(text.ends_with("disconnected\ntest complete\nreturn status 0\n"), "{text}");
    }
}

#[test]
fn udaddy_sends_and_gets_replies() {
    let common = ["-c", "3", "-C", "20", "-S", "1000"];
    let server = [&["udaddy", "--device", "udp:127.79.3.1"][..], &common].concat();
    let client =
        [&["udaddy", "-s", "127.79.3.1", "--device", "udp:127.79.3.2"][..], &common].concat();
    let (server, client) = play(&server, &client);
    assert!(server.contains("sending replies\ndata transfers complete\n"), "{server}");
    assert!(client.contains("receiving data transfers\ndata transfers complete\n"), "{client}");
}

#[test]
fn mckey_receives_what_is_sent_to_its_group() {
    let mut receiver =
        roce(&["mckey", "-m", "239.79.4.1", "-b", "127.79.4.1", "-C", "5"]).spawn().unwrap();
    let mut output = std::io::BufReader::new(receiver.stdout.take().unwrap());
    let mut line = String::new();
    while line != "receiving data transfers\n" {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut output, &mut line).unwrap(), 0, "it has ended");
    }
    let sender = end(roce(&["mckey", "-m", "239.79.4.1", "-b", "127.79.4.2", "-C", "5", "-s"])
        .spawn()
        .unwrap());
    assert!(
        sender.status.success()
            && said(&sender).contains("initiating data transfers\ndata transfers complete\n")
    );
    assert!(end(receiver).status.success());
}

/// Duplicates and RNR NAKs change only the duration: ⅔ s, by the RNR timer that CM requests.
/// Processes with one capture name overwrite nothing.
#[test]
fn faults_are_survived_and_captures_keep_apart() {
    let scratch = tempfile::Builder::new().prefix("roce-tools-").tempdir().unwrap();
    let pcap = scratch.path().join("x.pcapng");
    let common = [
        "-v",
        "-C",
        "3",
        "--fault",
        "rnr once; duplicate every 2",
        "--pcap",
        pcap.to_str().unwrap(),
    ];
    let server = ["rping", "-s", "--device", "udp:127.79.6.1"];
    let client = ["rping", "-c", "-V", "-a", "127.79.6.1", "--device", "udp:127.79.6.2"];
    let (server, _) = play(&[&server[..], &common].concat(), &[&client[..], &common].concat());
    assert_eq!(server.lines().filter(|line| line.starts_with("server ping data")).count(), 3);
    let mut files: Vec<_> =
        std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // Clients without a server leave only finished captures.
    let whole = |path: &std::path::PathBuf| {
        let mut reader =
            pcap_file::pcapng::PcapNgReader::new(std::fs::File::open(path).unwrap()).unwrap();
        let mut comments = String::new();
        while let Some(block) = reader.next_block() {
            comments.push_str(&format!("{:?}", block.unwrap()));
        }
        comments.contains("refused with RNR NAK") && comments.contains("; from qp 0x")
    };
    assert!(files.len() >= 2 && files.iter().filter(|path| whole(path)).count() == 2, "{files:?}");
}

#[test]
fn bad_input_gives_one_line_that_says_what_to_do() {
    for (arguments, wanted) in [
        (&["rping", "-s", "-S", "3"][..], "choose one of 23 to 65535 with -S"),
        (
            &["rping", "-c", "-a", "127.79.5.1", "-C", "1"],
            "nobody listens at 127.79.5.1:7174; start the server there first",
        ),
        (
            &["ucmatose", "-s", "127.79.5.1", "-f", "ipv6"],
            "127.79.5.1 is not an address of the format ipv6; see -f",
        ),
        (&["ucmatose", "-a", "32"], "choose one of 0 to 31 with -a"),
        (
            &["udaddy", "-s", "127.79.5.1"],
            "nobody listens at 127.79.5.1:7174; start the server there first",
        ),
        (&["udaddy", "-s", "127.79.5.1", "-S", "70000"], "use -S 4096 or less"),
        (
            &["mckey", "-m", "10.0.0.1"],
            "10.0.0.1 is not a multicast address; choose one like 239.1.2.3 or ff05::1:2",
        ),
    ] {
        let mut command = roce(arguments);
        if arguments.contains(&"127.79.5.1") {
            command.args(["--device", "udp:127.79.5.1"]);
        }
        let output = end(command.spawn().unwrap());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(wanted) && error.lines().count() == 1,
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn what_is_wrong_with_the_options_is_said_before_anybody_connects() {
    let output = end(roce(&["pingpong", "rc", "--fault", "nonsense"]).spawn().unwrap());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("roce: in the fault \"nonsense\""), "{error}");
    let mut command = roce(&["pingpong", "rc"]);
    let output = end(command.env("ROCE_SHARDS", "x").spawn().unwrap());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("roce: ROCE_SHARDS: \"x\" is not a number"), "{error}");
}
