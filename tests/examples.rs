//! `cargo test` has built the examples.

use std::{
    env,
    io::{BufRead, BufReader, Lines},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

fn example(name: &str) -> Command {
    // next to the tests' directory
    let deps: PathBuf = env::current_exe().unwrap().parent().unwrap().into();
    let mut command = Command::new(deps.parent().unwrap().join("examples").join(name));
    command.stdout(Stdio::piped());
    command
}

struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// 127.0.0.1, unless another program has it.
    address: String,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("`cargo build --examples` makes the examples");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = "listening on 127.";
        let line = lines
            .find(|line| line.as_ref().unwrap().starts_with(listening))
            .expect("no address")
            .unwrap();
        let address =
            line.trim_start_matches("listening on ").rsplit_once(':').unwrap().0.to_owned();
        Self { child, lines, address }
    }

    fn end(mut self) -> String {
        let text: Vec<String> = self.lines.by_ref().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success(), "{text:?}");
        text.join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // if the test has failed
    }
}

fn client(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn client_and_server() {
    for udp in [&[][..], &["--udp"]] {
        let server = Server::start(example("cm_server").args(udp));
        let client = client(example("cm_client").arg(&server.address).args(udp));
        assert!(
            client.contains("the server says \"come in\"\nreceived \"hello, client\"\ndone"),
            "{client}"
        );
        let server = server.end();
        assert!(server.contains(": \"may I?\"\nreceived \"hello, server\"\ndone"), "{server}");
    }
}

#[test]
fn one_sided() {
    let server = Server::start(&mut example("one_sided"));
    let client = client(example("one_sided").arg(&server.address));
    assert!(client.contains("there stands \"WHATEVER THE CLIENT HAS TO SAY\" now"), "{client}");
    assert!(server.end().contains("there stands \"whatever the client has to say\""));
}
